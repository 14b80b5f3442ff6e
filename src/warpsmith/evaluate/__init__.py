"""Judging candidates: a supervisor without device state, a trusted judge, one process per candidate.

    evaluator     the supervisor: builds, queues, kills, assembles verdicts; imports no torch
    supervising   its side of the workers: parents that fork them, judges, locks, cached verdicts
    judging       the judge, trusted: owns inputs, outputs, baselines, time, and decides
    correctness   its rules for what is right: fp64 reference, limits, calibration
    hosts         untrusted: load one candidate each and call it on the judge's buffers
    confinement   what keeps a host from everything else
    replay        on a GPU: a host's calls as data, made by a process of ours when the host is dead
    verification  deep verification of winners
    profiling     why a kernel is as slow as it is
    messages, wire, layout, cudadriver   what several of these share

Anything in a host's address space can be forged, so nothing a host says decides a verdict: it can only claim to have
finished (the judge looks at the buffers), and what it says about time is held against the judge's own clock or not
used at all.
"""
