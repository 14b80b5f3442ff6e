"""The `cuda` backend: CUDA C++17 with a plain C entry point, compiled by nvcc for one architecture.

No torch headers: they cost a minute per candidate, a plain entry point about a second. Building needs nvcc and no GPU.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from warpsmith.backends.builder import CUDA_NAMES, CompileOptions, NativeBackend, missing_headers
from warpsmith.backends.c_contract import PRODUCT, CDialect, LibraryHeader
from warpsmith.backends.cutlass import Cutlass, build_mark, contract_line, find_cutlass, without_cutlass
from warpsmith.backends.library import library_digest, library_headers
from warpsmith.backends.toolchain import NO_NVCC, Compiler, find_nvcc, host_compiler
from warpsmith.hardware.device import visible_gpus
from warpsmith.model.build import Artifact, Availability, Backend, BuildFailure, DeviceKind, Target
from warpsmith.model.candidate import Candidate
from warpsmith.model.contract import Contract
from warpsmith.model.errors import ToolMissing, UsageError
from warpsmith.model.task import Precision

NO_HOST = "nvcc needs a host compiler: install g++, or set NVCC_CCBIN"

# What the sources of tasks have that headers of the library are for: in doubt a header
# is named. Every task file has `normal(`.
_REDUCTION = (
    r"norm(?!al\b)|softmax|logsumexp|loss|entropy|kl_div|similarity|"
    r"(?:mean|sum|std|var|prod|max|min|median|all|any)\w*\s*\("
)
_EXPONENTIAL = r"exp(?!and)|(?<!r)elu\b|softplus|mish|silu|swish"
_SELECTION = r"top_?k|sort|kthvalue"
_NORM = r"norm(?!al\b)|(?:mean|std|var)\w*\s*\("
_SCAN = r"cum(?:sum|prod|max|min)|cumulative|scan|cumsumexp"
_POOL = r"pool|unfold|window"
_CONVOLUTION = r"conv(?!ert)|unfold"
_PRODUCT = rf"{PRODUCT}|\b(?:dot|vdot|mv|outer|inner|tensordot|kron)\b"
_ATTENTION = r"attention|softmax[\s\S]*(?: @ |matmul|bmm)|(?: @ |matmul|bmm)[\s\S]*softmax"

DIALECT = CDialect(
    backend="cuda",
    language="CUDA C++17",
    fence="cuda",
    ctypes={
        "float64": "double",
        "float32": "float",
        "float16": "__half",
        "bfloat16": "__nv_bfloat16",
        "float8_e4m3fn": "__nv_fp8_e4m3",
        "float8_e5m2": "__nv_fp8_e5m2",
        "int64": "int64_t",
        "int32": "int32_t",
        "int16": "int16_t",
        "int8": "int8_t",
        "uint8": "uint8_t",
        "bool": "bool",
        "complex64": "float2",
        "complex128": "double2",
    },
    includes=(
        *("cstdint", "cstddef", "cstdio", "cstdlib", "cstring", "cmath", "cfloat", "climits"),
        *("algorithm", "limits", "cuda_runtime.h"),
    ),
    type_includes={
        "float16": "cuda_fp16.h",
        "bfloat16": "cuda_bf16.h",
        "float8_e4m3fn": "cuda_fp8.h",
        "float8_e5m2": "cuda_fp8.h",
    },
    type_preludes={},
    memory="device",
    alignment_bytes=256,
    table_note="an array in HOST memory that holds device pointers: give kernels its entries, not the array",
    rules=(
        "Launch everything on `(cudaStream_t)stream`: no other stream, no legacy default stream.",
        "Do not synchronise (no cudaDeviceSynchronize, no cudaStreamSynchronize) and do not allocate: "
        "the call must be capturable into a CUDA graph.",
        "Check launches: `return (int)cudaGetLastError();` at the end. More than 48 KiB of dynamic shared "
        "memory needs cudaFuncSetAttribute first.",
        "Compiled by nvcc with `-O3 --extended-lambda --expt-relaxed-constexpr` for the device's own "
        "architecture, without `-use_fast_math`; intrinsics such as `__expf` may be used.",
    ),
    type_rules={},
    product_rules={
        Precision.FP32: "Products of float32 accuracy can be computed on tensor cores from parts: write each factor as "
        "a sum of two fp16 or TF32 numbers (or three bf16 ones): the rounded value, and what the rounding left, scaled "
        "where the type has few exponents; multiply large with large, large with small and small with large, and add. "
        "One part alone is too coarse. Tensor cores truncate when they accumulate, so that the error grows with the "
        "number of terms: a plain 3xTF32 product over 8192 terms misses the limit eight-fold. Move partial sums to "
        "ordinary float32 registers every few steps (32 to 128 terms) and add them there.",
    },
    library=(
        LibraryHeader(
            "packs.cuh", "`float4` packs: `load_once`, `store_once`, `load_masked`, `store_masked`; `exp_near`"
        ),
        LibraryHeader("divisor.cuh", "`Divisor`: division by a number that does not change"),
        LibraryHeader("elementwise.cuh", "`map<F, THREADS, PACKS>(x, out, n, stream)`: a function of single elements"),
        LibraryHeader(
            "expm1.cuh", "`expm1_selected(x)`: exp(x) - 1 for x of at most 0, without a branch", _EXPONENTIAL
        ),
        LibraryHeader(
            "rows.cuh",
            "`reduce_rows(policy, rows, cols, stream)`: a reduction over each row, then a value per element",
            _REDUCTION,
        ),
        LibraryHeader(
            "kept.cuh",
            "`launch_kept`, `launch_spread`: the same, a row in the shared memory of a cluster or of all blocks",
            _REDUCTION,
        ),
        LibraryHeader(
            "lagged.cuh",
            "`reduce_any_rows`: the same, with rows too long for registers read again from the cache",
            _REDUCTION,
        ),
        LibraryHeader(
            "short_rows.cuh", "`reduce_all_rows`: the same for rows of any length; short ones share a warp", _REDUCTION
        ),
        LibraryHeader(
            "columns.cuh",
            "`reduce_columns(x, batch, rows, cols, policy, stream)`: a reduction over the middle axis",
            _REDUCTION,
        ),
        LibraryHeader(
            "axis_reduction.cuh",
            "`reduce_axis`, `reduce_last_axis`: sums, extremes and their places over any axis",
            _REDUCTION,
        ),
        LibraryHeader(
            "row_top_k.cuh",
            "`top_of_rows<K, LARGEST>`: the K largest or smallest elements of each row, sorted, with places",
            _SELECTION,
        ),
        LibraryHeader(
            "whole.cuh", "`sum_all(policy, n, workspace, finish, stream)`: one number from all elements", _REDUCTION
        ),
        LibraryHeader("blocks.cuh", "`meet`: what blocks tell each other through device memory"),
        LibraryHeader(
            "bulk_copy.cuh",
            "`bulk_fetch`, `barrier_init`, `barrier_wait`: copies into shared memory and their barriers",
        ),
        LibraryHeader("group_norm.cuh", "`group_norm_policy` for `reduce_rows`", _NORM),
        LibraryHeader("channel_norm.cuh", "`normalise_channels`: batch normalisation with planes of any length", _NORM),
        LibraryHeader(
            "scan.cuh",
            "`scan<Op, REVERSE, EXCLUSIVE, MASKED, THREADS, PACKS>(x, mask, out, rows, cols, stream)`",
            _SCAN,
        ),
        LibraryHeader("long_scan.cuh", "`scan_any`: the same; long rows are shared by many blocks", _SCAN),
        LibraryHeader(
            "axis_scan.cuh",
            "`scan_axis<Op, REVERSE, EXCLUSIVE>(x, out, batch, rows, cols, workspace, stream)`: over any axis",
            _SCAN,
        ),
        LibraryHeader("pool.cuh", "`pool1`, `pool2`, `pool3` with `MaxPool` or `AvgPool`", _POOL),
        LibraryHeader(
            "pool_ahead.cuh",
            "`pool2_ahead`: as `pool2`, for windows of up to 5 x 5, with the next rows on their way",
            _POOL,
        ),
        LibraryHeader(
            "pool_bands.cuh", "`pool_bands<P, Shape, THREADS, BYTES>`: any windows, by bands in shared memory", _POOL
        ),
        LibraryHeader(
            "depthwise.cuh", "`depthwise::launch<H, W, ROWS>`: convolution with one filter per channel", _CONVOLUTION
        ),
        LibraryHeader(
            "depthwise_any.cuh",
            "`filter_channels<Options>`: one filter per channel, any options, small images",
            _CONVOLUTION,
        ),
        LibraryHeader(
            "convolution.cuh", "`launch_convolution<COLUMNS, OUT_STEP, ROWS>(form, ...)`: any convolution", _CONVOLUTION
        ),
        LibraryHeader(
            "convolution_stream.cuh",
            "`launch_stream`, `launch_separable`: convolutions along one axis or of one tap",
            _CONVOLUTION,
        ),
        LibraryHeader(
            "convolution_held.cuh",
            "`launch_held<COLUMNS, OUT_STEP, ROWS, TRIPLE, FOLD>`: as `launch_convolution`, sums stay in registers",
            _CONVOLUTION,
        ),
        LibraryHeader(
            "convolution_strided.cuh",
            "`launch_strided`: convolutions of few channels with a stride, such as stems",
            _CONVOLUTION,
        ),
        LibraryHeader(
            "convolution_flat.cuh",
            "`launch_flat`: few channels to 64, stride 1, taps near each other, one pass",
            _CONVOLUTION,
        ),
        LibraryHeader(
            "convolution_gathered.cuh",
            "`launch_gathered`: small or few images, 1 x 1 kernels, large strides",
            _CONVOLUTION,
        ),
        LibraryHeader(
            "convolution_few_terms.cuh", "`launch_few_terms`: convolutions with at most 32 terms", _CONVOLUTION
        ),
        LibraryHeader(
            "matmul.cuh",
            "`multiply(product, a, b, epilogue, workspace, stream)`: fp32-class products on tensor cores",
            _PRODUCT,
        ),
        LibraryHeader(
            "triangle_product.cuh", "`multiply_triangle<SIDE>`: one triangle of a product, zeros elsewhere", _PRODUCT
        ),
        LibraryHeader(
            "small_product.cuh", "`multiply_small`: float32 products with few rows or columns, and small ones", _PRODUCT
        ),
        LibraryHeader(
            "register_product.cuh",
            "`multiply_in_registers`: small and thin products, split in registers, one launch",
            _PRODUCT,
        ),
        LibraryHeader(
            "flash_attention.cuh",
            "`flash::attend(heads, workspace, stream)`: causal attention in the fp32 class",
            _ATTENTION,
        ),
        LibraryHeader(
            "attention_heads.cuh",
            "`attention::attend<CAUSAL>(heads, workspace, stream)`: q, k, v in three tensors",
            _ATTENTION,
        ),
        LibraryHeader(
            "split_product.cuh", "the main loop of `matmul.cuh`: tiles, factors in two fp16 parts, epilogues", _PRODUCT
        ),
        LibraryHeader(
            "wgmma.cuh",
            "warpgroup matrix instructions as functions: fp16 factors in shared memory, float32 sums",
            _PRODUCT,
        ),
        LibraryHeader("wgmma_f16.cuh", "the same for factors that lie K-major, from descriptors", _PRODUCT),
        LibraryHeader(
            "mma_tf32.cuh", "`split`, `multiply_split`: float32 products of one warp by TF32 instructions", _PRODUCT
        ),
    ),
    installed=(
        "CUB and cooperative groups of the CUDA toolkit, which count as your own code as well: "
        "`#include <cub/block/block_reduce.cuh>`, `#include <cooperative_groups.h>`, ... Single headers compile faster "
        "than `<cub/cub.cuh>`.",
    ),
)

_FLAGS = (
    *("-std=c++17", "-O3", "-shared", "-lineinfo", "--extended-lambda", "--expt-relaxed-constexpr"),
    *("-Xcompiler", "-fPIC"),
    # Shared: faster to link, and the imports of the library are then the calls of the candidate.
    *("-cudart", "shared"),
    *("-Xptxas", "-v"),
    *("-Xcudafe", "--error_limit=5"),
    # CUB's markers for profilers would search for a library and load it.
    "-DNVTX_DISABLE",
    # Warnings about unused variables help no proposer.
    "-diag-suppress=177,550",
)
_LINK_FLAGS = ("-Xlinker", "--no-undefined", "-Xlinker", "-z", "-Xlinker", "now")


class CudaBackend(NativeBackend):
    name: str = "cuda"
    suffixes: tuple[str, ...] = (".cu",)
    devices: tuple[DeviceKind, ...] = (DeviceKind.CUDA,)
    dialect = DIALECT

    def available(self) -> Availability:
        """Whether nvcc and g++ are there to build, and a GPU to run."""
        compiler = find_nvcc(self._builder.environ)
        seen = visible_gpus()
        device = seen[0].name if seen else "no GPU: CUDA candidates can be built here, not run"
        if compiler is None:
            return Availability(build=False, run=bool(seen), detail=NO_NVCC)
        if host_compiler(self._builder.environ) is None:
            return Availability(build=False, run=bool(seen), detail=NO_HOST)
        return Availability(build=True, run=bool(seen), detail=f"{compiler.name}, {device}")

    def build(self, candidate: Candidate, contract: Contract, target: Target) -> Artifact | BuildFailure:
        """Compile for `target.arch`, e.g. "sm_90a"; no GPU is needed."""
        arch = re.fullmatch(r"sm_(\d+[af]?)", target.arch)
        if target.kind not in self.devices or arch is None:
            raise UsageError(f"backend cuda cannot build for {target.kind} {target.arch!r}; name it like sm_90a.")
        compiler = find_nvcc(self._builder.environ)
        if compiler is None:
            raise ToolMissing(NO_NVCC + ".")
        if host_compiler(self._builder.environ) is None:
            raise ToolMissing(NO_HOST + ".")
        cutlass = find_cutlass(self._builder.environ)
        recipe = _recipe(compiler, candidate, contract, arch[1], self._library, cutlass)
        made = self._builder.build(candidate, contract, recipe)
        if isinstance(made, BuildFailure) and cutlass is None:
            return replace(made, reason=without_cutlass(made.reason))
        return made

    def _dialect_here(self) -> CDialect:
        cutlass = find_cutlass(self._builder.environ)
        return replace(DIALECT, installed=(*DIALECT.installed, contract_line(cutlass))) if cutlass else DIALECT


def _recipe(
    compiler: Compiler, candidate: Candidate, contract: Contract, arch: str, folder: Path, cutlass: Cutlass | None
) -> CompileOptions:
    texts = [file.text for file in candidate.files]
    headers = missing_headers(texts, CUDA_NAMES)
    library = library_headers(*texts, folder=folder)
    mark = build_mark(texts, cutlass)
    if mark and cutlass:
        flags = (*compiler.search_flags, *cutlass.flags)
        compiler = replace(compiler, name=f"{compiler.name}, {cutlass.name}", search_flags=flags)
    return CompileOptions(
        compiler=compiler,
        # Sources without these headers have the keys that they had before there was a choice.
        target=" ".join(part for part in (arch, library_digest(library) if library else "", mark) if part),
        flags=(
            *_FLAGS,
            f"-gencode=arch=compute_{arch},code=sm_{arch}",
            *((f"-I{folder}",) if library else ()),
            *("-x", "cu"),
        ),
        include_flags=tuple(word for header in headers for word in ("-include", header)),
        link_flags=(
            *_LINK_FLAGS,
            *(("-Xlinker", "--no-as-needed", "-Xlinker", str(compiler.stdlib)) if compiler.stdlib else ()),
            *(f"-l{name}" for name in contract.libraries),
        ),
        suffixes=CudaBackend.suffixes,
    )


PLUGIN: Backend = CudaBackend()
