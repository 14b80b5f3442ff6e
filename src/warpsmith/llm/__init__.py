"""Models that answer prompts over HTTP: one file per provider, found by `core.registry`. Not for what is asked."""
