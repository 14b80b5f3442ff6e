"""A run: the session (ask/tell), the loop that drives it, tuning."""
