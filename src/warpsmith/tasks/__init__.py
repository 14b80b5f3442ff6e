"""Tasks: native task files, KernelBench files, and the programs loaded from them.

`declare` has the names that a native task file uses and needs no torch; `load.load_task` turns a file into a
`program.Program`.
"""
