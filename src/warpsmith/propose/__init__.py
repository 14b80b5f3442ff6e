"""Those who write replies to briefs: models, commands, the catalogue, recordings."""
