"""Why a candidate is not faster, in words: profilers are run, their counters read, and a digest made of them.

Counters end here: what leaves this package is a `digest.Digest`, a bottleneck with the two or three numbers that prove
it. The supervisor's side throughout; only `inputs` runs as a process of its own, with torch.
"""
