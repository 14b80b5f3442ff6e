"""The processes of a candidate: hosts of native and Python candidates, and the worker that compiles Python candidates.

Untrusted from the moment a candidate is loaded.
"""
