"""What the guard makes of the names in a trace: made-up traces, with names as CUPTI and PyTorch give them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from warpsmith.evaluator.guards.attack_classes import title
from warpsmith.evaluator.guards.trace import PLUGIN
from warpsmith.model.evaluation import Status
from warpsmith.model.evidence import LibraryTime, TracedCall

OWN = "_Z7softmaxPKfPfll"
LAUNCH = ("__cudaPushCallConfiguration_v13000", "__cudaPopCallConfiguration_v13000", "__cudaLaunchKernel_v13000")
ADD = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_"  # at::add
FILL = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"
COPY = (
    "_ZN2at6native24unrolled_elementwise_kernelIZZZNS0_23direct_copy_kernel_cudaERNS_18TensorIteratorBaseE"
    "ENKUlvE1_clEvENKUlvE5_clEvEUlfE_EEviT_"
)
CONCATENATE = "_ZN2at6native40_GLOBAL__N__2351210d_8_Shape_cu_49f7391c19CatArrayBatchedCopyIfjLi2ELi128ELi1EEEvPT_"
CUTLASS = (
    "cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4",  # a library's name for its kernel, and a candidate's
    "_ZN7cutlass6KernelINS_4gemm6kernel4GemmINS1_11threadblock12MmaPipelinedEEEEEvNT_6ParamsE",
    "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEEEEEEvNT_6ParamsE",
)


def python(*own: str, others: tuple[str, ...] = (), operators: tuple[str, ...] = ()) -> TracedCall:
    return TracedCall("triton", kernels=(*own, *others), own=own, operators=operators)


def native(*calls: str, kernels: tuple[str, ...] = (OWN,), allow: tuple[str, ...] = ()) -> TracedCall:
    return TracedCall("cuda", calls, kernels, own=(OWN,), allow=allow)


HONEST = (
    native(*LAUNCH),
    native("cudaLaunchKernel_v7000", "cudaGetLastError_v3020", "cudaFuncSetAttribute_v9000"),
    native("cudaLaunchKernelExC_v11060", "cudaMemsetAsync_v3020", "cudaMemcpyAsync_ptsz_v7000"),
    native("cudaMalloc_v3020", "cudaFree_v3020", "cudaMallocAsync_v11020", "cudaDeviceSynchronize_v3020", *LAUNCH),
    native("cudaGetDriverEntryPointByVersion_v12050", "cuTensorMapEncodeTiled", *LAUNCH),
    native("cudaLaunchCooperativeKernel_v9000", "cudaOccupancyMaxActiveBlocksPerMultiprocessor_v6000"),
    native("cudaMemcpyAsync_v3020", kernels=()),  # a copy is computed without a kernel
    native("cudaStreamCreate_v3020", *LAUNCH, kernels=("ampere_sgemm_128x64_nn",), allow=("cublas",)),
    python("matmul_kernel", "gemm_kernel_0d1d2d", "winograd_3x3", others=(FILL,)),
    python("add_kernel", operators=("aten.empty_like.default", "aten.view.default")),
    python("_Z9my_kernelIN3c104HalfEEvPT_", others=(COPY, CONCATENATE), operators=("own.norm.default",)),
    TracedCall(
        "torch_module", operators=("aten.empty.memory_format", "aten::copy_", "aten::contiguous", "aten.t.default")
    ),
    TracedCall("torch_module", kernels=(ADD,), operators=("aten.add.Tensor", "aten.mm.default"), allow=("torch",)),
    TracedCall("torch_module", kernels=("nvjet_tst_128x256",), operators=("aten.mm.default",), allow=("cublas",)),
    TracedCall("torch_module", operators=("numpy.from_numpy",), allow=("numpy",)),
    TracedCall("torch_module", kernels=("elemWiseRNNcell",), elsewhere=("elemWiseRNNcell",), allow=("torch",)),
    python(*CUTLASS),  # compiled from templates in the candidate's source: its own work
    TracedCall("cuda", LAUNCH, CUTLASS, own=CUTLASS),
    TracedCall("torch_module"),  # on the CPU: an extension that makes its own tensors
)

DISHONEST: tuple[tuple[TracedCall, int, str], ...] = (
    (native("cudaStreamCreateWithFlags_v5000", *LAUNCH), 5, "uses cudaStreamCreateWithFlags;"),
    (native("cuStreamCreate", *LAUNCH), 5, "uses cuStreamCreate;"),
    (native("cudaGraphLaunch_v10000"), 8, "uses cudaGraphLaunch;"),
    (native("cudaLaunchHostFunc_v10000", *LAUNCH), 6, "cudaLaunchHostFunc"),
    (native("cuCtxSetLimit", *LAUNCH), 16, "cuCtxSetLimit"),
    (native("cudaStreamSetAttribute_v11000", *LAUNCH), 16, "cudaStreamSetAttribute"),
    (native("cuModuleLoadData", *LAUNCH), 15, "cuModuleLoadData"),
    (native("cudaLibraryLoadData_v12060", *LAUNCH), 15, "cudaLibraryLoadData"),
    (native("cuIpcOpenMemHandle_v2", *LAUNCH), 19, "cuIpcOpenMemHandle_v2"),
    (native("cudaHostRegister_v4000", *LAUNCH), 19, "cudaHostRegister"),
    (native("cuSomethingNew", *LAUNCH), 15, "cuSomethingNew"),
    (native(*LAUNCH, kernels=(OWN, "ampere_sgemm_128x64_nn")), 15, "not its own run: ampere_sgemm_128x64_nn;"),
    (TracedCall("cuda", LAUNCH, (OWN,), elsewhere=(OWN,), own=(OWN,)), 5, "softmax runs on another stream;"),
    (replace(python("own_kernel"), elsewhere=("own_kernel",)), 5, "own_kernel runs on another stream;"),
    (TracedCall("torch_module", kernels=(ADD,), elsewhere=(ADD,), allow=("torch",)), 5, "runs on another stream;"),
    (native(kernels=()), 10, "no call to CUDA was seen"),
    (
        TracedCall("torch_module", operators=("aten.empty.memory_format", "aten.mm.default")),
        15,
        "computes with aten.mm.default;",
    ),
    *((TracedCall("cuda", LAUNCH, (OWN, each), own=(OWN,)), 15, "kernels that are not its own") for each in CUTLASS),
    *((python("own_kernel", others=(each,)), 15, "kernels of a library run") for each in CUTLASS),
    (TracedCall("torch_module", operators=("aten::softmax",)), 15, "it computes with aten::softmax"),
    (TracedCall("torch_module", special=True), 15, "something else when its operators are listed"),
    (TracedCall("torch_module", operators=("aten.mm.default",), allow=("cudnn",)), 15, "aten.mm.default"),
    (
        TracedCall("torch_module", operators=("aten.empty.memory_format", "numpy.numpy")),
        15,
        "it computes with numpy.numpy",
    ),
    (python("own_kernel", others=(ADD,)), 15, "at::native::vectorized_elementwise_kernel"),
    (python("own_kernel", others=("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n",)), 15, "sm90_xmma_gemm"),
    (python("own_kernel", others=("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT",)), 15, "nvjet_hsh"),
    (TracedCall("torch_module", kernels=("_ZN5cudnn3ops20nchwToNhwcKernelIfEEv",)), 15, "cudnn"),
    (
        TracedCall("torch_module", kernels=(FILL, COPY), operators=("aten.clone.default",)),
        15,
        "only kernels of a library",
    ),
    (TracedCall("torch_module", operators=("aten.a", "aten.b", "aten.c", "aten.d", "aten.e")), 15, "c and 2 more"),
)


@pytest.mark.parametrize(
    "trace", HONEST, ids=lambda trace: f"{trace.backend} {' '.join((*trace.calls, *trace.kernels))[:50]}"
)
def test_an_honest_trace_meets_no_objection(trace: TracedCall) -> None:
    assert PLUGIN.objection(trace) is None


@pytest.mark.parametrize(("trace", "attack", "says"), DISHONEST, ids=[says for _, _, says in DISHONEST])
def test_a_dishonest_one_is_refused_by_its_class(trace: TracedCall, attack: int, says: str) -> None:
    found = PLUGIN.objection(trace)

    assert found is not None
    assert (found.status, found.attack) == (Status.REJECTED, attack), found.reason
    assert found.reason.startswith(f"{title(attack)}: ")
    assert re.search(re.escape(says), found.reason), found.reason
    assert found.reason.endswith(".")


def test_a_kernel_s_name_is_shown_readably_and_not_at_any_length() -> None:
    found = PLUGIN.objection(native(*LAUNCH, kernels=("_Z5otherPf", "_Z1" + "a" * 3000)))

    assert found is not None
    assert " other, " in found.reason
    assert len(found.reason) < 400


def hidden(library_ns: float, *, looks: int = 30, share: float = 0.8, operators_ns: int = 5_000) -> str:
    library = LibraryTime(("libtorch_cpu.so",), looks, share, library_ns)
    evidence = TracedCall("torch_module", operators=("aten.empty_like.default",), library=library)
    found = PLUGIN.objection(replace(evidence, operators_ns=operators_ns))
    return found.reason if found else ""


def test_work_of_a_library_needs_an_operator_that_explains_it() -> None:
    assert re.search("library call: 80 % of its work is done by libtorch_cpu.so", hidden(100_000))
    assert hidden(15_000) == "", "calling an operator costs something"
    assert hidden(100_000, operators_ns=60_000) == "", "large copies"
    assert hidden(100_000, looks=4) == "", "not enough to be sure"
    assert hidden(100_000, share=0.1) == "", "most of the work is its own"
    assert re.search("12 % of its work", hidden(300_000, share=0.12)), "nobody's call of an operator takes so long"
    assert hidden(300_000, share=0.05) == "", "most of the work is its own"
    assert hidden(300_000, share=0.12, operators_ns=80_000) == "", "large copies"


def test_an_operator_that_was_replaced_is_no_longer_pytorchs() -> None:
    found = PLUGIN.objection(TracedCall("torch_module", operators=("aten::clone", "redefined.aten::clone")))
    assert found is not None
    assert "it has replaced aten::clone of PyTorch" in found.reason
