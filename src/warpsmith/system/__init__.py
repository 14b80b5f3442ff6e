"""Processes, files and plugins: what every room needs of the operating system."""
