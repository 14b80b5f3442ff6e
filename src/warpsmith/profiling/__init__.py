"""Finds out why a candidate is not faster: runs profilers, reads their counters and makes a digest.

Other rooms get a `digest.Digest`: a bottleneck with the two or three numbers that prove it, and no counters. Runs in
the supervisor's process; `write_inputs` and `standalone_timed` are programs of their own, with torch.
"""
