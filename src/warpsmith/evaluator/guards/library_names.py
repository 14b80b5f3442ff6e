"""Names under which PyTorch and NVIDIA's libraries compute, and names under which they only move data.

Data for the guards about Python candidates, which may use torch but not compute with it. Kernels are recognised by
parts of their mangled names, operators by full names. The candidate's own kernels are known from its objects; these
lists classify the others. Also formats names for reasons.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from warpsmith.backends.diagnostics import demangled

# --- kernels ---------------------------------------------------------------------------------------

_ATEN = r"^_ZN?K?(?:2at|3c10|6caffe2|5torch)\d|at_cuda_detail|^_ZN13pytorch_flash|^fmha_cutlass[FB]_"
_PRODUCT = (
    r"cublas|^nvjet_|^(?:ampere|turing|volta|maxwell|pascal)_\w*gemm|sm\d+_xmma_gemm|cutlass_\d\d_\w*gemm"
    r"|gemv2[NT]_kernel|gemvNSP_kernel|^_ZN8internal5gemvx|gemmSN_[NT]{2}_kernel|gemmk1_kernel"
)
_CONVOLUTION = r"cudnn|cask_|implicit_convolve_[sdh]gemm|sm\d+_xmma_(?:fprop|dgrad|wgrad)|^_Z\w{0,4}nchwToNhwcKernel"
PYTORCH_KERNEL = re.compile(_ATEN)
KERNELS_OF = {"cublas": re.compile(_PRODUCT), "cublasLt": re.compile(_PRODUCT), "cudnn": re.compile(_CONVOLUTION)}

MOVING_KERNEL = re.compile(
    r"FillFunctor|direct_copy_kernel|float\w*_copy_kernel|CatArrayBatchedCopy|arange_cuda|copy_device_to_device"
)
"""Kernels of PyTorch that fill and copy."""

# --- operators -------------------------------------------------------------------------------------

NAMESPACES = frozenset(
    (
        "aten",
        "numpy",
        "prims",
        "prim",
        "quantized",
        "_quantized",
        "mkldnn",
        "mkl",
        "onednn",
        "inductor",
        "rngprims",
        "torchvision",
    )
)
"""Namespaces of PyTorch and NumPy; any other belongs to an extension of the candidate."""
REDEFINED = "redefined"
"""The namespace under which an operator of PyTorch is listed that the candidate has replaced."""

_ALLOCATING = """
    empty empty_like empty_strided empty_permuted new_empty new_empty_strided zeros zeros_like new_zeros ones ones_like
    new_ones full full_like new_full fill fill_ zero zero_ scalar_tensor arange resize_ set_ lift lift_fresh
    lift_fresh_copy _efficientzerotensor
"""
_MOVING = """
    copy copy_ _to_copy to _copy_from clone contiguous cat concat stack hstack vstack repeat constant_pad_nd pin_memory
    _pin_memory record_stream _local_scalar_dense item is_pinned
"""
_VIEWING = """
    alias detach detach_ view view_as view_as_real view_as_complex reshape _reshape_alias _unsafe_view expand expand_as
    permute transpose transpose_ t t_ mT mH squeeze squeeze_ unsqueeze unsqueeze_ select slice narrow split
    split_with_sizes chunk unbind as_strided as_strided_ flatten unflatten movedim moveaxis swapaxes swapdims diagonal
    unfold real imag _conj _neg_view resolve_conj resolve_neg type_as ravel tensor_split result_type
    _has_compatible_shallow_copy_type
    size stride numel dim is_contiguous is_same_size storage_offset sym_size sym_stride sym_numel sym_storage_offset
    is_complex is_floating_point is_nonzero _version _assert_async
"""
MOVING_OPERATORS = frozenset(f"{_ALLOCATING} {_MOVING} {_VIEWING}".split())
QUICK_OPERATORS = frozenset(_VIEWING.split()) | {name for name in _ALLOCATING.split() if "empty" in name}
"""Those of them that touch no element."""

_PRODUCTS = "mm addmm bmm baddbmm matmul linear dot vdot mv addmv addr addbmm _scaled_mm einsum inner outer"
_CONVOLUTIONS = """
    convolution _convolution conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d cudnn_convolution
    cudnn_convolution_transpose cudnn_convolution_relu cudnn_convolution_add_relu cudnn_batch_norm native_batch_norm
"""
OPERATORS_OF = {
    "cublas": frozenset(_PRODUCTS.split()),
    "cublasLt": frozenset(_PRODUCTS.split()),
    "mkl": frozenset(_PRODUCTS.split()),
    "cudnn": frozenset(_CONVOLUTIONS.split()),
}


_IN_OBJECT = re.compile(r"_ZN2at4_ops\d+(\w+?)\d+(?:call|redispatch)E")


def operator_imported(symbol: str) -> str:
    """The operator of an imported symbol with its overload, e.g. "slice_Tensor"; "" if the symbol is no operator."""
    match = _IN_OBJECT.match(symbol)
    return match[1] if match else ""


def only_moves(imported: str) -> bool:
    """True if an imported operator ("slice_Tensor", "copy_") only moves data."""
    return any(imported == name or imported.startswith(f"{name}_") for name in MOVING_OPERATORS)


def operator(name: str) -> tuple[str, str]:
    """Namespace and name: ("aten", "mm") for "aten.mm.default", "aten::mm" or "aten::mm.out"."""
    namespace, _, rest = name.replace("::", ".").partition(".")
    return namespace, rest.partition(".")[0]


NAMED = 3  # names in a reason; the others are counted
_LONGEST = 90  # characters of a kernel's name


def listed(names: Sequence[str]) -> str:
    """The first few names, and the number of others."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def readable(kernels: Sequence[str]) -> list[str]:
    """Demangled and shortened kernel names."""
    return [name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..." for name in demangled(kernels)]
