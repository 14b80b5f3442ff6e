"""Models that answer prompts over HTTP: one file per provider, found by `system.plugins`."""
