"""Methods of search: one small declarative file each, with a PLUGIN.

A method declares what a proposer is shown, which operators ask in which order, and which population keeps the kernels.
"""
