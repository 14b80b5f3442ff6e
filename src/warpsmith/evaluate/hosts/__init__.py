"""What runs in a candidate's own process, native or Python, and the forge that compiles for the latter.

Untrusted from the moment a candidate is loaded.
"""
