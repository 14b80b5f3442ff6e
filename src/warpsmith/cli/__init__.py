"""The command line: commands, what people see of a verdict, and what programs read.

Decides nothing about kernels: it turns arguments into calls of the other rooms and their answers into text.
"""
