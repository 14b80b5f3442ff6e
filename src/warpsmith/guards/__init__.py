"""Guards: one file per family of attack. Each looks at one kind of evidence and objects or not.

Nothing here measures, runs or loads a candidate, and nothing imports torch: instruments of `evaluate` gather
the evidence. Adding a guard means adding a file with a PLUGIN.
"""
