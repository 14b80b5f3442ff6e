"""The names a native candidate may import or call: plain data for `imports` and `trace`.

Patterns match whole names. The known bad ones, and what each is good for, are in `suspects`, which is asked first;
what neither knows is a library call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


def one_of(*patterns: str) -> re.Pattern[str]:
    """Matches any of them; spaces and line breaks separate alternatives."""
    return re.compile("|".join(f"(?:{word})" for text in patterns for word in text.split()))


# --- allowed everywhere ----------------------------------------------------------------------------

_MATH = """
    acos acosh asin asinh atan atan2 atanh cabs cacos cacosh canonicalize carg casin casinh catan catanh cbrt ccos
    ccosh ceil cexp cimag clog clog10 conj copysign cos cosh cpow cproj creal csin csinh csqrt ctan ctanh drem erf erfc
    exp exp10 exp2 expm1 fabs fdim finite floor fma fmax fmaximum fmaximum_num fmaximum_mag fmaximum_mag_num fmin
    fminimum fminimum_num fminimum_mag fminimum_mag_num fmaxmag fminmag fmod fpclassify frexp gamma
    getpayload hypot ilogb iseqsig isinf
    isnan issignaling j0 j1 jn ldexp lgamma llogb llrint llround log log10 log1p log2 logb lrint lround modf nan
    nearbyint nextafter nextdown nexttoward nextup pow pow10 remainder remquo rint round roundeven scalb scalbln scalbn
    setpayload significand signbit sin sincos sinh sqrt tan tanh tgamma totalorder trunc y0 y1 yn
    u?fromfpx? setpayloadsig totalordermag rsqrt compoundn pown powr rootn
    (?:a?cos|a?sin|a?tan|atan2)pi exp2m1 exp10m1 log2p1 log10p1
"""
MATH = (
    r"(?:__)?(?:" + "|".join(_MATH.split()) + r")(?:f|l|f16|f32|f64|f128|f32x|f64x|bf16)?(?:_r)?(?:_finite)?",
    r"(?:f|d|f32x?|f64x?)(?:add|sub|mul|div|fma|sqrt)(?:l|f64|f128|f32x|f64x)?",  # rounded to a narrower type
    r"_ZGV[a-zA-Z][NM]\d*v*\w*_\w+",  # the vector forms of the same
    r"signgam __signgam fe(?:clear|raise|test|get|set|hold|update|enable|disable)\w*",
)

_ARITHMETIC = (
    "abs add ashl ashr bswap clrsb clz cmp ctz div divmod eq extend ffs fix fixuns float floatun ge gt le lshr lt mod "
    "mul ne neg parity popcount powi sub trunc ucmp udiv udivmod umod unord"
)
COMPILER = (
    # libgcc: arithmetic the processor has no instruction for, e.g. __udivti3, __extendhfsf2, __mulsc3
    r"__(?:" + "|".join(_ARITHMETIC.split()) + r")v?(?:[sdthxb][ifc]){1,2}\d?",
    r"__gnu_\w+ __aarch64_\w+ __cpu_(?:model|indicator_init|features2) __emutls_get_address",
    r"_Unwind_\w+ __cxa_\w+ __g(?:xx|cc)_personality_v0 __dynamic_cast __once_proxy",
    r"__gmon_start__ _ITM_\w+ __tls_get_addr __dso_handle __libc_single_threaded",
    r"abort __assert __assert_fail __assert_perror_fail __stack_chk_(?:fail|guard) __chk_fail __fortify_fail",
)

LIBC = (
    # memory and text
    r"(?:__)?(?:mem|str|wcs|wmem|stp)\w+ bcmp bcopy bzero explicit_bzero (?:__)?rawmemchr ffs ffsl ffsll swab",
    r"index rindex",
    r"(?:__libc_)?(?:malloc|calloc|realloc|free|memalign|valloc|pvalloc) reallocarray aligned_alloc posix_memalign",
    r"malloc_usable_size malloc_trim mallopt madvise",
    r"(?:is|to)w?(?:alnum|alpha|blank|cntrl|digit|graph|lower|print|punct|space|upper|xdigit|ascii)(?:_l)?",
    r"mb\w*towcs? wcr?tomb btowc wctob (?:new|use|free|dup)locale",
    r"__ctype_\w+ __isoc(?:99|23)_(?:strto\w+|wcsto\w+|v?sscanf) __errno_location localeconv",
    # numbers
    r"qsort qsort_r bsearch l?l?abs l?l?div imaxabs imaxdiv ato(?:i|l|ll|f) rand srand rand_r random srandom",
    r"[delmnj]rand48(?:_r)? srand48(?:_r)? random_r srandom_r initstate setstate",
    # output to the standard streams, which lead nowhere
    r"(?:__)?(?:v?f?printf|v?sn?printf|v?asprintf)(?:_chk)? v?sscanf putchar puts f?putc fputs f?putchar fwrite",
    r"(?:putc|putchar|fputc|fputs|fwrite|fflush)_unlocked _IO_putc __overflow fflush setvbuf setbuf perror",
    r"stdout stderr stdin ferror feof clearerr f(?:un)?lockfile atexit",
    # locks and questions; threads come from OpenMP
    r"(?:__)?pthread_(?:mutex|rwlock|spin|cond|barrier|once|key|self|equal|getspecific|setspecific)\w* mtx_\w+",
    r"call_once",
    r"sysconf get_nprocs get_nprocs_conf getpagesize sched_getcpu sched_yield sched_getaffinity __sched_cpu\w+",
    r"(?:__)?getauxval pthread_getaffinity_np",
)

CPLUSPLUS = (
    r"_Z(?:nw|na|dl|da)\w+",
    # namespace std with its abbreviations and its helpers: functions, methods, tables, type information
    r"",
    r"_Z(?:T[VTISCHW]|GV|T[hv]\w*?_)?N?[rVKRO]*(?:S[tsaoidb]|9__gnu_cxx|11__gnu_debug|14__gnu_parallel|10__cxxabiv1)\w*",
    r"_ZTI[PK]*(?:[a-z]|D[a-zF]\w*)",  # type information of built-in types
)

OPENMP = (
    r"GOMP_(?!target|offload|PLUGIN)\w+ __kmpc_\w+",
    r"omp_(?:get|set|in|is|init|destroy|test|unset|aligned)_\w+ omp_(?:alloc|calloc|realloc|free)",
)

# --- allowed on CUDA, by the names of the runtime and of the driver ---------------------------------------------------

_CUDA_BOTH = (
    r"cu(?:da)?Launch(?:Cooperative)?Kernel\w* cudaLaunch cu(?:da)?Func\w+ cu(?:da)?Kernel\w+ cu(?:da)?Occupancy\w+",
    r"cu(?:da)?Mem(?:set|cpy)\w* cu(?:da)?MemGet\w+ cu(?:da)?MemPool[GS]etAttribute\w*",
    r"cu(?:da)?PointerGet\w+ cu(?:da)?DeviceGet\w* cu(?:da)?(?:Driver|Runtime)GetVersion\w*",
    r"",
    r"cu(?:da)?Stream(?:Synchronize|IsCapturing|GetCaptureInfo|GetFlags|GetPriority|GetDevice|GetId|GetAttribute|Query)\w*",
    r"cu(?:da)?Get(?:Error|Device|Symbol|Kernel|Func|DriverEntryPoint|ProcAddress|Channel|Texture|Surface)\w*",
    r"cuda(?:Create|Destroy)(?:Texture|Surface|Channel)\w+ cu(?:Tex|Surf)Object\w+",
)
CUDA = (
    *_CUDA_BOTH,
    r"__cuda\w+ __nv\w+ __fatbin\w+",
    r"cuda(?:Malloc|Malloc3D|MallocPitch|MallocArray|Malloc3DArray|MallocAsync|MallocFromPoolAsync) cudaFree\w*",
    r"cuda(?:GetLastError|PeekAtLastError|SetDevice|DeviceSynchronize) cudaDeviceSet(?:CacheConfig|SharedMemConfig)",
)
CALLED = (  # while a call is traced; runtime names end in their version there, e.g. cudaLaunchKernel_v7000
    *_CUDA_BOTH,
    r"__cuda\w+",
    r"cuda(?:Malloc|Malloc3D|MallocPitch|MallocArray|Malloc3DArray|MallocAsync|MallocFromPoolAsync)_(?:v|pt)\w+",
    r"cudaFree\w*",
    r"cuda(?:GetLastError|PeekAtLastError|SetDevice|DeviceSynchronize|DeviceSet(?:Cache|SharedMem)Config)\w*",
    r"cuTensorMap\w+ cuInit cuMem(?:Alloc|Free)(?!Host|Managed)\w* cuCtx(?:Get|Synchronize|SetCurrent|Push|Pop)\w*",
    r"cu(?:Module|Library)Get\w+ cuArray(?:Create|Destroy|Get)\w+ cuDevicePrimaryCtxGetState",
)

TORCH = (
    # What an extension of PyTorch needs of it and of Python: tensors, checks, bindings. Operators are judged by name.
    r"_?Py[A-Z_]\w+ _Z\w*8pybind11\w*",
    r"_Z(?:T[VTISCHW]|GV)?N?[VKRO]*(?:3c10|2at|5torch|6caffe2)"
    r"(?!4_ops|6native|6launch|4cuda\d+(?:getStreamFromPool|CUDAGraph|blas|getCurrentCUDA(?:Blas|Sparse|Solver))"
    r"|\d+(?:Task)?ThreadPool|3jit|2nn)\w*",
)

LIBRARIES = (
    r"lib(?:c|m|mvec|gcc_s|stdc\+\+|gomp|omp|iomp5|pthread|dl|rt)\.so(?:\.\d+)* ld-linux\S*\.so(?:\.\d+)*",
    r"linux-vdso\.so(?:\.\d+)*",
)
CUDA_LIBRARIES = (r"libcudart\.so(?:\.\d+)*",)
TORCH_LIBRARIES = (r"lib(?:c10|c10_cuda|torch|torch_cpu|torch_cuda|torch_python|python3\.\d+)\.so(?:\.\d+)*",)

EXTENSION = "extension"  # in place of a backend: an object that a Python candidate brings
PYTHON = "python"  # in place of a backend: the modules that a Python candidate's text names

ALLOWED = {
    "cpu": one_of(*MATH, *COMPILER, *LIBC, *CPLUSPLUS, *OPENMP),
    "cuda": one_of(*MATH, *COMPILER, *LIBC, *CPLUSPLUS, *OPENMP, *CUDA),
    EXTENSION: one_of(*MATH, *COMPILER, *LIBC, *CPLUSPLUS, *OPENMP, *CUDA),
}
TOLERATED = {  # suspects' names that honest objects cannot avoid
    "cpu": one_of(r"_ZNSt28__atomic_futex_unsigned_base\w+"),  # waits for a future; the name speaks of std::chrono
    # The same, and exit: nvcc gives every __device__ function a host side that calls it.
    "cuda": one_of(r"_ZNSt28__atomic_futex_unsigned_base\w+ exit"),
    EXTENSION: one_of(r"_ZNSt28__atomic_futex_unsigned_base\w+ exit", *TORCH),
}
NEEDED = {
    "cpu": one_of(*LIBRARIES),
    "cuda": one_of(*LIBRARIES, *CUDA_LIBRARIES),
    EXTENSION: one_of(*LIBRARIES, *CUDA_LIBRARIES, *TORCH_LIBRARIES),
}
CALLS = one_of(*CALLED)

# --- libraries a task may allow -----------------------------------------------------------------------

_BLAS = r"cblas_\w+ [sdcz][a-z]{3,6}\d?_ LAPACKE_\w+ (?:openblas|goto|blas)_\w+ xerbla_"
_SYMBOLS_OF = {
    "cublasLt": r"cublasLt\w+",
    "cublas": r"cublas\w+",
    "openblas": _BLAS,
    "blas": _BLAS,
    "cblas": _BLAS,
    "lapack": _BLAS,
    "blis": rf"{_BLAS} bli_\w+",
    "mkl": rf"{_BLAS} mkl_\w+ MKL_\w+ v[sdcz][A-Z]\w+ Dfti\w+ vsl\w+",
    "cuda": r"cu[A-Z]\w+",
}
_OFFERED = ("cublasLt", "cublas", "cudnn", "curand", "cufft", "cusparse", "cusolver", "nvrtc", "openblas", "mkl")


def symbols_of(library: str) -> re.Pattern[str]:
    """The names that a library may bring: of the known ones, else those that begin with its own name."""
    known = _SYMBOLS_OF.get("mkl" if library.startswith("mkl") else library)
    return one_of(known) if known else re.compile(rf"{re.escape(library)}\w*", re.IGNORECASE)


def library_of(names: Sequence[str]) -> str:
    """The library that all these names belong to, as a task would allow it; "" where that is not known."""
    for library in _OFFERED:
        if all(symbols_of(library).fullmatch(name) for name in names):
            return library
    return ""
