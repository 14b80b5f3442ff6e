"""Using a kernel that was found: bundles, and operators that replace a PyTorch function.

    bundle         a folder with the kernel, its task and a manifest; written and read without torch
    load           `load`: from a bundle to an `Operator`
    operator       the callable: uses the kernel where it covers a call, else the reference
    coverage       which calls a kernel covers
    gradients      the reference's gradients for a kernel's outputs
    arguments      from the arguments of the reference to the kernel's tensors, and back to its result
    native_kernel  kernels in C++ and CUDA, called with ctypes
    python_kernel  kernels in Python: Triton, `ModelNew`, functions, torch extensions

Nothing here judges. A loaded kernel runs in the caller's process, without a sandbox.
"""
