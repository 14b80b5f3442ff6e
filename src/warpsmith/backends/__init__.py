"""Languages a candidate can be written in: one plugin file each (`cpu`, `cuda`), and what they share.

Everything here runs in the supervising process: it compiles candidates and never loads or runs one.
"""
