"""The driver's structures that describe nodes of a graph, as ctypes. Standard library only."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_size_t, c_uint, c_ulonglong, c_void_p

KERNEL, MEMCPY, MEMSET, EMPTY = 0, 1, 2, 5  # kinds of nodes
HOST_MEMORY, DEVICE_MEMORY, ARRAY, UNIFIED = 1, 2, 3, 4  # sides of a copy

# Attributes of a launch.
ACCESS_POLICY, COOPERATIVE, CLUSTER = 1, 2, 4
CARVEOUT = 14
ATTRIBUTE_BYTES = 64

# Attributes of a function.
MOST_DYNAMIC_SHARED, ANY_CLUSTER = 8, 14

PROGRAMMATIC = 1  # type of an edge
AT_START = 2  # its port at the first node: as soon as that has begun


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS, second version."""

    _fields_ = [
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("parameters", ctypes.POINTER(c_void_p)),
        ("extra", ctypes.POINTER(c_void_p)),
        ("kernel", c_void_p),
        ("context", c_void_p),
    ]


class MemsetNode(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS."""

    _fields_ = [
        ("target", c_ulonglong),
        ("pitch", c_size_t),
        ("value", c_uint),
        ("element_bytes", c_uint),
        ("width", c_size_t),
        ("height", c_size_t),
    ]


class Side3D(ctypes.Structure):
    """One half of CUDA_MEMCPY3D."""

    _fields_ = [
        ("x", c_size_t),
        ("y", c_size_t),
        ("z", c_size_t),
        ("level", c_size_t),
        ("kind", c_int),
        ("host", c_void_p),
        ("device", c_ulonglong),
        ("array", c_void_p),
        ("reserved", c_void_p),
        ("pitch", c_size_t),
        ("height", c_size_t),
    ]


class MemcpyNode(ctypes.Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = [
        ("source", Side3D),
        ("target", Side3D),
        ("width", c_size_t),
        ("height", c_size_t),
        ("depth", c_size_t),
    ]


class EdgeData(ctypes.Structure):
    """CUgraphEdgeData."""

    _fields_ = [
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    ]


SIZES = {KernelNode: 72, MemsetNode: 40, MemcpyNode: 200, EdgeData: 8}
"""What the driver's headers say; a test holds the above against it."""
