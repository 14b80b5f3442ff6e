"""Verdicts over HTTP: the application, its tokens, its journal of submissions, and the thread that has them judged.

The live page of runs (`live_page`, `served_runs`) is a router of its own, in this application or alone.
"""
