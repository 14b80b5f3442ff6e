"""The catalogue of strategies (one TOML file per backend), the space of plans, and the pool of earlier runs."""
