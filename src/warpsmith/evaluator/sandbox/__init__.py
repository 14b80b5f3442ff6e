"""Keeps a candidate's process from everything but its work: sandbox, Landlock, seccomp."""
