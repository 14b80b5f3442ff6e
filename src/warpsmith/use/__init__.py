"""Using a kernel that was found: bundles, and operators that put one in the place of a PyTorch function.

    bundle     a folder with the kernel, its task and a manifest; written and read without torch
    loading    `load`: from a bundle to an `Operator`
    operator   the callable: asks whether the kernel covers a call, and falls back to the reference where it does not
    coverage   what a kernel may be given
    arguments  from a call as the reference takes it to the kernel's tensors, and back
    library    kernels in C++ and CUDA: bound with ctypes once
    pythonic   kernels in Python: Triton, `ModelNew`, functions, torch extensions
    floating   the caller's floating-point mode, kept over a call

Nothing here judges. A loaded kernel runs in the caller's own process, without a sandbox.
"""
