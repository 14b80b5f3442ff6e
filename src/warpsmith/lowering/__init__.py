"""Reads the operations of a reference as expressions over loop axes, groups these into stages, and writes them as C++.

The templates (`kernel_templates`) and the form of rows (`kernels.form_rows`) stand on it.
"""
