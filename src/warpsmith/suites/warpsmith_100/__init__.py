"""One hundred operators at the shapes and settings of KernelBench level 1, one file each."""
