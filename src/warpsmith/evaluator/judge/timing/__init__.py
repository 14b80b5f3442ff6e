"""How candidates and baselines are timed."""
