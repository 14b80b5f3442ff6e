"""Timing a CUDA candidate without its host code: a call is recorded as data, its process killed, the data replayed.

`recording` runs in the candidate's process and says what a call launches; `callgraph` is what it says, `fatbin` what
its file really holds, `admission` what of it may be replayed; `rebuilding` and `replayer` run in a process where no
instruction of the candidate's host code has ever been executed; `ranges` gives all of them the same addresses; `stand`
is the judge's part.
"""
