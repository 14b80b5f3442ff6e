"""Proposers reply to briefs: models, commands, templates, recordings."""
