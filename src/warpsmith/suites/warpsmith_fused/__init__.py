"""Twelve fused chains that models use, at several sizes each, one file each."""
