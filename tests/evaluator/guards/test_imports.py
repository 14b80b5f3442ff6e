"""What objects of the real compilers import is allowed or refused, and the refusal says what and why."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from warpsmith.backends.elf import read_symbols
from warpsmith.backends.python_source import modules_named
from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.backends.toolchain import find_cxx, find_nvcc
from warpsmith.evaluator.guards.attack_classes import title
from warpsmith.evaluator.guards.imports import PLUGIN
from warpsmith.evaluator.guards.symbol_lists import PYTHON
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.evaluation import Status
from warpsmith.model.evidence import BuiltObject, Objection

PROGRAMS = Path(__file__).parent / "programs"
HONEST = ("containers", "text", "numbers", "threads_of_openmp")
FLAGS = {"plain": ("-O0",), "fast": ("-O3", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong")}
FORBIDDEN = {  # a macro of forbidden.cpp: the class it belongs to, and a name that must be told
    "THREAD": (6, "std::thread"),
    "ASYNC": (6, "std::"),
    "CHRONO": (9, "std::chrono"),
    "SLEEP": (17, "sleep"),
    "STREAM": (19, "std::basic_filebuf"),
    "FILES": (19, "std::filesystem"),
    "ENTROPY": (19, "std::random_device"),
    "VARIABLE": (19, "getenv"),
    "LOADER": (15, "dlopen"),
    "PATCH": (9, "mprotect"),
    "CHANNEL": (10, "write"),
    "SHELL": (22, "system"),
    "ALIAS": (6, "clone"),
    "WEAK": (22, "fork"),
}


def compiled(folder: Path, name: str, *flags: str) -> BuiltObject:
    """The face of a program, built as a candidate is."""
    compiler = find_cxx({"PATH": "/usr/local/bin:/usr/bin:/bin"})
    assert compiler is not None
    library = folder / f"{'-'.join((name, *flags))}.so".replace("/", "")
    source = PROGRAMS / f"{name}.cpp"
    command = [*compiler.command, "-std=c++17", "-shared", "-fPIC", "-fopenmp", *flags, "-o", str(library), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    symbols = read_symbols(library)
    return BuiltObject("cpu", symbols.imports, symbols.needed)


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BuiltObject]:
    """All programs, compiled side by side."""
    folder = tmp_path_factory.mktemp("objects")
    jobs = {f"{name} {kind}": (name, *FLAGS[kind]) for name in HONEST for kind in FLAGS}
    jobs |= {macro: ("forbidden", f"-D{macro}", "-O2") for macro in FORBIDDEN}
    with ThreadPoolExecutor() as pool:
        return dict(zip(jobs, pool.map(lambda job: compiled(folder, *job), jobs.values()), strict=True))


@pytest.mark.parametrize("kind", FLAGS)
@pytest.mark.parametrize("name", HONEST)
def test_computation_is_allowed_whatever_it_imports(faces: dict[str, BuiltObject], name: str, kind: str) -> None:
    face = faces[f"{name} {kind}"]

    assert len(face.imports) > 10
    assert PLUGIN.objection(face) is None


@pytest.mark.parametrize("macro", FORBIDDEN)
def test_what_serves_an_attack_is_refused_by_its_class(faces: dict[str, BuiltObject], macro: str) -> None:
    attack, symbol = FORBIDDEN[macro]
    found = PLUGIN.objection(faces[macro])

    assert found is not None
    assert (found.status, found.attack) == (Status.REJECTED, attack), found.reason
    assert re.match(rf"{title(attack)}: the object imports .*{re.escape(symbol)}.*; .+\.$", found.reason), found.reason


# Names of other systems than the one the tests run on: Ubuntu 24.04 with g++ 13, clang++, Arm.
ELSEWHERE = """
    __isoc23_strtol __isoc23_sscanf __isoc23_strtoull _ZSt21ios_base_library_initv __cxa_call_terminate
    _ZSt28__throw_bad_array_new_lengthv _ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE10_M_replaceEmmPKcm
    _ZSt8to_charsPcS_d __truncsfbf2 __extendbfsf2 _ZTIDF16_ _ZTIDF16b __kmpc_fork_call __kmpc_for_static_init_4u
    __kmpc_barrier __kmpc_global_thread_num omp_get_thread_num _ZGVdN4v_exp _ZGVeN16v_expf _ZGVbN4vv_powf
    _ZGVnN4v_expf _ZGVsMxv_expf __expf_finite __powf_finite __aarch64_ldadd4_acq_rel __getauxval __memcpy_chk
    __vsnprintf_chk __printf_chk __libc_single_threaded __pthread_key_create pthread_mutex_lock fmaximum_numf
    GOMP_parallel_reductions GOMP_loop_ull_nonmonotonic_dynamic_next __udivti3 __mulsc3 __gnu_h2f_ieee
    __divhc3 __tls_get_addr _ZThn16_NSdD1Ev _ZTTNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEE
    sched_getaffinity __sched_cpucount madvise sysconf
"""
ON_CUDA = """
    __cudaRegisterFatBinary __cudaRegisterFunction __cudaRegisterVar __cudaPushCallConfiguration __cudaLaunchKernel
    __cudaGetKernel cudaLaunchKernel cudaLaunchKernelExC cudaLaunchCooperativeKernel cudaGetLastError
    cudaPeekAtLastError cudaGetErrorString cudaFuncSetAttribute cudaFuncGetAttributes cudaDeviceGetAttribute
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cudaGetDevice cudaGetDeviceProperties
    cudaGetDeviceProperties_v2 cudaMemsetAsync cudaMemcpyAsync cudaMemcpyToSymbolAsync cudaGetSymbolAddress cudaMalloc
    cudaFree cudaMallocAsync cudaFreeAsync cudaDeviceSynchronize cudaStreamSynchronize cudaStreamIsCapturing
    cudaGetDriverEntryPoint cudaGetDriverEntryPointByVersion cudaCreateTextureObject cudaSetDevice exit
"""
SUSPECT = {
    5: "cudaStreamCreate cudaStreamCreateWithFlags cudaEventRecord cudaStreamWaitEvent",
    6: "pthread_create clone cudaLaunchHostFunc cudaStreamAddCallback timer_create _ZNSt6threadC1Ev",
    8: "cudaStreamBeginCapture cudaGraphLaunch cudaGraphInstantiate cudaThreadExchangeStreamCaptureMode",
    16: "cudaDeviceSetLimit cudaStreamSetAttribute cudaCtxResetPersistingL2Cache",
    15: "cublasSgemm_v2 cudnnCreate cblas_sgemm sgemm_ mkl_malloc dlsym dlmopen PyGILState_Ensure"
    " _ZN2at4_ops2mm4callERKN nvrtcCompileProgram cudaLibraryLoadData regcomp cudaGetExportTable",
    19: "socket fopen fopen64 open openat64 environ getenv cudaIpcOpenMemHandle cudaHostRegister cudaMallocHost"
    " cudaMallocManaged syscall ioctl read getpid memfd_create",
    22: "fork vfork execve posix_spawn kill setrlimit cudaDeviceReset sched_setaffinity",
    9: "clock_gettime gettimeofday time times omp_get_wtime mprotect mmap cudaEventElapsedTime",
    17: "nanosleep usleep pthread_cond_timedwait poll",
    10: "write send sendmsg dprintf __dprintf_chk _exit _Exit quick_exit sigaction siglongjmp __sigsetjmp raise fdopen"
    " dup2",
    2: "process_vm_readv ptrace dl_iterate_phdr _dl_find_object",
}


@pytest.mark.parametrize("name", ELSEWHERE.split())
def test_what_other_compilers_import_is_allowed_too(name: str) -> None:
    assert PLUGIN.objection(BuiltObject("cpu", (name,), ())) is None
    assert PLUGIN.objection(BuiltObject("cuda", (name,), ())) is None


@pytest.mark.parametrize("name", ON_CUDA.split())
def test_launching_and_copying_is_allowed_on_cuda(name: str) -> None:
    assert PLUGIN.objection(BuiltObject("cuda", (name,), ("libcudart.so.13", "libc.so.6"))) is None
    assert PLUGIN.objection(BuiltObject("cpu", (name,), ())) is not None


@pytest.mark.parametrize(("attack", "name"), [(a, n) for a, names in SUSPECT.items() for n in names.split()])
def test_a_single_name_is_enough_to_be_refused(attack: int, name: str) -> None:
    found = PLUGIN.objection(BuiltObject("cuda", ("expf", name, "memcpy"), ()))

    assert found is not None
    assert (found.attack, found.status) == (attack, Status.REJECTED), found.reason
    assert found.reason.startswith(f"{title(attack)}: the object imports ")


def objected(*imports: str, allow: tuple[str, ...] = (), needed: tuple[str, ...] = ()) -> Objection | None:
    return PLUGIN.objection(BuiltObject("cuda", imports, needed, allow))


def test_a_reason_names_three_and_counts_the_rest() -> None:
    found = objected("fopen", "getenv", "open", "socket", "expf", "usleep")

    assert found is not None
    assert "imports fopen, getenv, open and 1 more (1 other name would be refused too);" in found.reason


def test_the_worst_attack_is_named_first() -> None:
    found = objected("clock_gettime", "usleep", "pthread_create")

    assert found is not None
    assert found.attack == 6


def test_a_library_that_the_task_allows_may_be_called() -> None:
    imports, needed = ("cublasCreate_v2", "cublasSgemm_v2"), ("libcublas.so.13", "libcudart.so.13")
    refused = objected(*imports, needed=needed)

    assert refused is not None
    assert 'let the task allow the library (allow = ["cublas"])' in refused.reason
    assert objected(*imports, needed=needed, allow=("cublas",)) is None
    assert objected(*imports, needed=needed, allow=("cudnn",)) is not None
    assert objected("cblas_sgemm", "sgemm_", needed=("libopenblas.so.0",), allow=("openblas",)) is None
    assert objected("Sleef_expf8_u10", needed=("libsleef.so.3",), allow=("sleef",)) is None


def test_an_allowed_library_does_not_allow_anything_else() -> None:
    found = objected("cublasCreate_v2", "cudaStreamCreate", allow=("cublas",))

    assert found is not None
    assert found.attack == 5


def test_a_library_nobody_allowed_is_refused_even_when_nothing_of_it_is_imported() -> None:
    found = objected("expf", needed=("libm.so.6", "libblas.so.3"))

    assert found is not None
    assert found.attack == 15
    assert "libblas.so.3" in found.reason


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("import torch, triton.language as tl\nfrom math import pi\n", ""),
        ('torch.ops.warpsmith_like("a warpsmith at work")', ""),
        ("from .warpsmith import helper", ""),
        ("def broken(:", ""),
        ("import warpsmith.evaluator.protocol.wire", "warpsmith.evaluator.protocol.wire"),
        ("def late():\n    from warpsmith.evaluator import candidate", "warpsmith.evaluator"),
        ("import importlib as i\ni.import_module('warpsmith.model')", "warpsmith.model"),
        ("import sys\nsys.modules['warpsmith']", "warpsmith"),
    ],
)
def test_a_python_file_has_no_business_with_the_harness(text: str, named: str) -> None:
    found = PLUGIN.objection(BuiltObject(PYTHON, modules_named(text), ()))
    if not named:
        assert found is None
        return
    assert found is not None
    assert (found.status, found.attack) == (Status.REJECTED, 10)
    assert f"forged verdict: the source imports {named}, a part of the harness" in found.reason


# Of extensions that PyTorch builds; operators with their overloads.
EMPTY = "_ZN2at4_ops10empty_like4callERKNS_6TensorESt8optionalIN3c1010ScalarTypeEE"
SLICE = "_ZN2at4_ops12slice_Tensor4callERKNS_6TensorElSt8optionalIN3c106SymIntEES7_S6_"
PRODUCT = "_ZN2at4_ops2mm4callERKNS_6TensorES4_"
EXTENSION_NAMES = (
    "_ZN5torch3jit11parseSchemaERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEb",  # TORCH_LIBRARY
    *("PyGILState_Ensure", "_Py_Dealloc", "PyModuleDef_Init", "_ZTVN5torch8autograd12AutogradMetaE", EMPTY, SLICE),
    *("_ZN3c106detail14torchCheckFailEPKcS2_jS2_", "_ZNK2at10TensorBase8data_ptrIfEEPT_v", "cudaLaunchKernel", "exit"),
    *(
        "_ZN8pybind116detail11type_casterIN2at6TensorEvE4loadENS_6handleEb",
        "_ZN6caffe28TypeMeta26error_unsupportedES0_",
    ),
    *(
        "_ZN3c104cuda20getCurrentCUDAStreamEa",
        "_ZN3c104cuda14ExchangeDeviceEa",
        "_ZN2at4cuda24getCurrentDevicePropertiesEv",
    ),
)


def in_extension(*imports: str, allow: tuple[str, ...] = ()) -> Objection | None:
    needed = ("libc10.so", "libtorch_cpu.so", "libtorch_python.so", "libc10_cuda.so", "libcudart.so.13")
    return PLUGIN.objection(BuiltObject("extension", imports, needed, allow))


def test_an_extension_may_use_tensors_checks_and_bindings() -> None:
    assert in_extension(*EXTENSION_NAMES) is None


@pytest.mark.parametrize(
    ("symbol", "attack"),
    [
        (PRODUCT, 15),
        ("_ZN2at4cuda24getCurrentCUDABlasHandleEv", 15),
        ("cublasSgemm_v2", 15),
        ("_ZN5torch2nn10LinearImplC1E", 15),
        ("_ZN2at3cpu8_softmaxERKNS_6TensorElb", 15),
        ("_ZN2at4cuda2mmERKNS_6TensorES3_", 15),
        ("_ZN2at25compositeexplicitautograd7softmaxERKNS_6TensorE", 15),
        ("_ZNK3c1010Dispatcher9callBoxedERKNS_14OperatorHandleEPSt6vectorINS_6IValueESaIS5_EE", 15),
        ("_ZN2at20enableRecordFunctionEb", 15),
        ("_ZN3c104cuda17getStreamFromPoolEba", 5),
        ("_ZN2at4cuda9CUDAGraph6replayEv", 8),
        ("_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE", 6),
        ("getenv", 19),
    ],
)
def test_an_extension_is_refused_for_what_a_native_candidate_is(symbol: str, attack: int) -> None:
    found = in_extension(*EXTENSION_NAMES, symbol)

    assert found is not None
    assert found.attack == attack, found.reason


def test_an_extension_may_call_operators_where_the_task_allows_pytorch() -> None:
    assert in_extension(PRODUCT, allow=("torch",)) is None


@pytest.mark.skipif(find_nvcc({"PATH": "/usr/local/bin:/usr/bin:/bin"}) is None, reason="no nvcc on this machine")
def test_a_cuda_kernel_is_allowed_with_device_functions_that_stay(
    task_file: Callable[[str], Path], tmp_path: Path
) -> None:
    """nvcc gives a device function that is visible elsewhere a host side, which calls exit."""
    from warpsmith.tasks.load import load_task

    source = tmp_path / "kernel.cu"
    source.write_text(
        "__device__ float twice(float x) { return 2 * x; }\n"
        "static __global__ void run(const float* x, float* out) { out[0] = twice(x[0]); }\n"
        'extern "C" int launch(const float* x, float* out, int64_t, int64_t, void*, void* stream) {\n'
        "  run<<<1, 1, 0, (cudaStream_t)stream>>>(x, out);\n  return (int)cudaGetLastError();\n}\n"
    )
    backend = backend_named("cuda")
    contract = backend.contract(load_task(str(task_file("softmax"))).task)
    built = backend.build(read_candidate(source), contract, Target(DeviceKind.CUDA, "sm_90a"))

    assert isinstance(built, Artifact)
    symbols = read_symbols(built.library)
    assert "exit" in symbols.imports
    assert PLUGIN.objection(BuiltObject("cuda", symbols.imports, symbols.needed)) is None
