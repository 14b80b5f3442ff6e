"""Suites of tasks that come with the package: read and judged like a user's files, never imported by our own code."""
