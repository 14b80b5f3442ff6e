"""Populations: what a search keeps of what it bred, and how it picks parents. One file per kind, with a PLUGIN.

A population is a fold over the log of a run: the same inserts, revisions and removals give the same one, and a pick
depends on it and on the seed that is passed in. Scores are speedups; only their ratios count, never their size.
"""
