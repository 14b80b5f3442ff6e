"""Confines the process of a candidate: the policy, Landlock for files, seccomp for system calls."""
