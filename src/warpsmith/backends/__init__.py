"""The languages of candidates: one plugin file each (`cpu`, `cuda`, `triton`, `torch_module`), and what they share.

This code runs in the supervisor: it compiles candidates and never loads or runs one.
"""
