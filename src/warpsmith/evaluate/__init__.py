"""Judging candidates: a supervisor without device state, a trusted judge, one process per candidate.

    evaluator   the supervisor: builds, queues, kills, assembles verdicts; imports no torch
    zygote      forks workers in milliseconds from a parent that has done its imports
    judge       trusted: owns inputs, outputs, reference, baseline, comparison, statistics
    host        untrusted: loads one candidate and calls it on the judge's buffers

Anything in the host's address space can be forged, so nothing the host says decides a verdict: it can
only claim to have finished (the judge looks at the buffers) and how long it took (the judge has its own
clock).
"""
