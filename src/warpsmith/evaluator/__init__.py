"""Evaluates candidates: a supervisor without device state, a trusted judge, and one untrusted process per candidate.

    supervisor    the user's process: builds, queues, kills, caches, assembles evaluations; imports no torch
    judge         the trusted process: owns inputs, outputs, references, baselines and clocks, and decides
    candidate     the untrusted processes: hosts load one candidate each and call it on the judge's buffers
    cuda_replay   on a GPU: the calls of a candidate as data, repeated by a trusted process after the host's death
    guards        checks against families of attack
    sandbox       confines hosts
    protocol      messages between these processes, and the layout of shared buffers
    cuda_driver   the calls of the CUDA driver that several of them use

Everything in a host's address space can be forged, so no reply of a host decides a verdict. A host can only claim to
have finished (the judge looks at the buffers), and the times it reports are compared with the judge's own clock or not
used.
"""
