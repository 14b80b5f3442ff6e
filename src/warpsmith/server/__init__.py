"""Verdicts over HTTP: the application, its tokens, its journal of submissions, and the thread that has them judged."""
