"""What can be optimised: native task files, KernelBench files, and the programs behind them.

`declare` is the vocabulary of a native task file and needs no torch; `load.load_task` turns a file into a
`program.Program`. Nothing here judges, builds or times.
"""
