"""Malformed inputs against every border of the program; see `targets` for the borders and `mutate` for the inputs."""
