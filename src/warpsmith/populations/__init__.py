"""Populations: which valid kernels a search keeps, and how it picks parents. One file per kind, with a PLUGIN.

The same inserts and removals always give the same population, and a pick depends only on the population and the seed.
Scores are speedups; only their ratios matter.
"""
