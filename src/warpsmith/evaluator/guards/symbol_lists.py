"""The names that a native candidate may import or call, and those that serve an attack: data for `imports` and `trace`.

Patterns match whole names. `FORBIDDEN` is searched before `ALLOWED`; a name that is in neither is a library call. Names
of the runtime (cudaX) and of the driver (cuX) stand side by side: the first are imported, both are traced. The order
of `FORBIDDEN` decides which reason a candidate with several forbidden names gets: the gravest comes first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


def one_of(*patterns: str) -> re.Pattern[str]:
    """A pattern that matches any of these, which are separated by spaces or line breaks."""
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
    r"|\d+(?:Task)?ThreadPool|3jit(?!11parseSchema)|2nn"
    # Operators past the dispatcher, the dispatcher itself, and what hides calls from those who list them.
    r"|3cpu|4meta|\d+composite[a-z]+|10redispatch|4cuda(?!6detail)\d+\w*RKNS_6Tensor|10Dispatcher|14OperatorHandle"
    r"|19TypedOperatorHandle|4impl13OperatorEntry|\d+\w*RecordFunction|4impl\d+(?:PythonDispatcher|TorchDispatchMode)"
    r")\w*",
)

LIBRARIES = (
    r"lib(?:c|m|mvec|gcc_s|stdc\+\+|gomp|omp|iomp5|pthread|dl|rt)\.so(?:\.\d+)* ld-linux\S*\.so(?:\.\d+)*",
    r"linux-vdso\.so(?:\.\d+)*",
)
CUDA_LIBRARIES = (r"libcudart\.so(?:\.\d+)*",)
TORCH_LIBRARIES = (r"lib(?:c10|c10_cuda|torch|torch_cpu|torch_cuda|torch_python|python3\.\d+)\.so(?:\.\d+)*",)

EXTENSION = "extension"  # used as a backend: an extension of a Python candidate
PYTHON = "python"  # used as a backend: the modules that a Python source imports

ALLOWED = {
    "cpu": one_of(*MATH, *COMPILER, *LIBC, *CPLUSPLUS, *OPENMP),
    "cuda": one_of(*MATH, *COMPILER, *LIBC, *CPLUSPLUS, *OPENMP, *CUDA),
    EXTENSION: one_of(*MATH, *COMPILER, *LIBC, *CPLUSPLUS, *OPENMP, *CUDA),
}
TOLERATED = {  # forbidden names that honest objects cannot avoid
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
    """The symbols of a library; for an unknown library, those that begin with its name."""
    known = _SYMBOLS_OF.get("mkl" if library.startswith("mkl") else library)
    return one_of(known) if known else re.compile(rf"{re.escape(library)}\w*", re.IGNORECASE)


def library_of(names: Sequence[str]) -> str:
    """The library that all these names belong to, as a task would allow it; "" if it is not known."""
    for library in _OFFERED:
        if all(symbols_of(library).fullmatch(name) for name in names):
            return library
    return ""


@dataclass(frozen=True)
class ForbiddenNames:
    """Names that serve one kind of attack."""

    attack: int  # its class in `attack_classes`
    cure: str  # what to do instead; the end of the reason
    names: re.Pattern[str]  # whole names
    parts: re.Pattern[str] | None = None  # components of mangled C++ names, each with its length

    def has(self, name: str) -> bool:
        """True if the name is one of these."""
        if self.names.fullmatch(name):
            return True
        return self.parts is not None and name.startswith("_Z") and self.parts.search(name) is not None


def _parts(components: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![0-9])(?:{'|'.join(components.split())})")


_OUT = "a kernel reads its inputs and writes its outputs, nothing else"

FORBIDDEN = (
    ForbiddenNames(
        6,
        "do all work in the calling thread (on the CPU, OpenMP is there for loops) and finish it before returning",
        one_of(
            r"pthread_create pthread_(?:attr|getattr|setattr|detach|join|exit|cancel|kill|setaffinity|sigqueue)\w*",
            r"thrd_(?!sleep)\w+ _?_?clone[23]? aio_\w+ lio_listio(?:64)? sem_(?!timed|clock)\w+",
            r"u?alarm setitimer timer_\w+ timerfd_\w+",
            r"cu(?:da)?LaunchHostFunc\w* cu(?:da)?StreamAddCallback\w*",
            r"_ZN?K?2at6launchE\w+ _Z\w*3c10\d+(?:Task)?ThreadPool\w*",
        ),
        _parts(r"6thread(?!20hardware_concurrency) 13__future_base\d+_Async_state"),
    ),
    ForbiddenNames(
        22,
        "start no process and keep within what you are given",
        one_of(
            r"_?_?(?:libc_)?v?fork _Fork forkpty exec[lv]\w* fexecve posix_spawn\w* system popen pclose daemon",
            r"kill killpg tgkill tkill sigqueue pidfd_\w+ wait waitpid wait[34] waitid setsid setpgid",
            r"(?:__)?register_atfork pthread_atfork (?:p|get|set)rlimit(?:64)? ulimit setpriority nice",
            r"sched_set\w+ mlock2? mlockall s?brk",
            r"cudaDeviceReset\w* cuDevicePrimaryCtxReset\w* cuCtx(?:Create|Destroy)\w*",
        ),
    ),
    ForbiddenNames(
        9,
        "change no code",
        one_of(r"(?:__)?(?:pkey_)?mprotect mremap remap_file_pages __clear_cache __enable_execute_stack"),
    ),
    ForbiddenNames(
        16,
        "leave the cache's settings alone",
        one_of(
            r"cu(?:da)?(?:Device|Ctx)SetLimit\w* cu(?:da)?Stream(?:Set|Copy)Attributes?\w*",
            r"cu(?:da)?CtxResetPersistingL2Cache\w*",
        ),
    ),
    ForbiddenNames(
        8,
        "launch the kernels themselves: the call is recorded into a graph where that is fair",
        one_of(
            r"cu(?:da)?Stream(?:Begin|End|Update)Capture\w* cu(?:da)?Graph(?!ics)\w+ cu(?:da)?UserObject\w+",
            r"cu(?:da)?ThreadExchangeStreamCaptureMode\w* _Z\w*2at4cuda9CUDAGraph\w*",
        ),
    ),
    ForbiddenNames(
        5,
        "launch everything on the stream that the call is given",
        one_of(
            r"cu(?:da)?Stream(?:Create|Destroy|Wait|Write|BatchMem)\w* cu(?:da)?Event(?!Elapsed)\w*",
            r"cu(?:da)?GreenCtx\w+ _Z\w*3c104cuda17getStreamFromPool\w*",
        ),
    ),
    ForbiddenNames(
        15,
        "compute it yourself",
        one_of(
            r"(?:__libc_)?dl(?:open|mopen|sym|vsym|close|error)\w* cu(?:blas|dnn|fft|rand|sparse|solver|tensor)\w*",
            r"cblas_\w+ LAPACKE_\w+ [sdczh]?gemm\w*_? (?:mkl|MKL|openblas|dnnl|nccl|nvrtc|nvJitLink|cupti)\w*",
            r"_?Py[A-Z_]\w+ _ZN?K?(?:3c10|2at|5torch|6caffe2|8pybind11)\w*",
            r"cu(?:da)?(?:Library|Module)(?:Load|Unload)\w* cuLink\w+ cudaGetExportTable cuGetExportTable",
        ),
    ),
    ForbiddenNames(
        19,
        _OUT,
        one_of(
            r"_?_?open(?:at|64|at64|at2)?(?:_2)? creat(?:64)? f(?:re)?open(?:64)? tmpfile(?:64)? te?mpnam\w*",
            r"mkst?emp\w* mkostemp\w* mkdtemp \w*opendir\w* readdir\w* scandir\w* \w*ftw\w* fts\w+ glob(?:64)?",
            r"f?truncate(?:64)? fallocate(?:64)? f?chmod(?:at)? [fl]?chown(?:at)? f?chdir mkdir(?:at)? mkfifo\w*",
            r"rmdir remove rename(?:at2?)? (?:un|sym)?link(?:at)? (?:__)?realpath(?:_chk)? get(?:cwd|wd)",
            r"(?:secure_|__secure_)?getenv (?:set|put|unset|clear)env _?_?environ _dl_argv __progname\w*",
            r"program_invocation_\w+ socket\w* connect accept4? bind listen getaddrinfo \w*inet_\w+ res_\w+",
            r"getrandom getentropy arc4random\w* gethost\w+ uname memfd_\w+ shm\w+ mq_\w+ msg(?:get|snd|rcv|ctl)",
            r"prctl arch_prctl personality unshare setns u?mount2? chroot pivot_root set[ef]?s?[ug]id\w* setres\w+",
            r"cu(?:da)?Ipc\w+ cu(?:da)?Host(?:Register|Unregister|Alloc|Get)\w* cudaMallocHost\w*",
            r"cuMem(?:Host|AllocHost)\w* cudaMallocManaged\w* cuMemAllocManaged\w* cu(?:da)?Import\w+",
            r"cu(?:da)?Mem(?:Advise|Prefetch|Export|Import|Map|Create|Address|PoolExport|PoolImport|PoolCreate)\w*",
            r"cu(?:da)?(?:Device|Ctx)(?:Enable|Disable)PeerAccess\w* cu(?:da)?Graphics\w+ cu(?:da)?Multicast\w+",
        ),
        _parts(
            r"10filesystem 13random_device 12__basic_file 13stdio_filebuf 13basic_(?:filebuf|fstream)"
            r" 14basic_[io]fstream"
        ),
    ),
    ForbiddenNames(
        10,
        "compute and return; a failed check ends in a return or in abort()",
        one_of(
            r"(?:__)?p?writev?(?:64|2)? (?:__)?v?dprintf(?:_chk)? (?:__)?send\w* recv\w* fdopen splice tee vmsplice",
            r"_?_?exit _Exit quick_exit at_quick_exit on_exit shutdown (?:__)?dup[23]? raise gsignal",
            r"signal (?:bsd|sysv|__sysv)_signal sigaction __sigaction sigaltstack sigprocmask pthread_sigmask sigset",
            r"_*(?:sig)?(?:set|long)jmp __longjmp_chk (?:get|set|make|swap)context",
        ),
        _parts(r"13set_terminate 14set_unexpected 15set_new_handler"),
    ),
    ForbiddenNames(
        2,
        "read your inputs and nothing else",
        one_of(
            r"process_vm_\w+ process_madvise ptrace dl_iterate_phdr dladdr1? dlinfo _dl_\w+ _r_debug backtrace\w*",
            r"_Unwind_(?:Backtrace|Find\w+|ForcedUnwind) __libc_stack_end __libc_start_main mincore",
        ),
    ),
    ForbiddenNames(
        17,
        "do not wait",
        one_of(
            r"(?:clock_)?nanosleep thrd_sleep u?sleep p?poll p?select epoll_\w+ pause sigsuspend sig(?:timed)?wait\w*",
            r"pthread_(?:cond|mutex|rwlock)_(?:timed|clock)\w* sem_(?:timed|clock)wait (?:mtx|cnd)_timed\w+",
        ),
        _parts(r"11this_thread"),
    ),
    ForbiddenNames(
        9,
        "a kernel needs no clock",
        one_of(
            r"(?:__)?clock_(?!nanosleep)\w+ clock (?:__)?gettimeofday time times ftime timespec_get getrusage",
            r"settimeofday adjtimex? omp_get_wti(?:me|ck)_? (?:local|gm|mk|c)time(?:_r)? strftime",
            r"cu(?:da)?EventElapsedTime\w* cu(?:da)?Profiler\w+",
        ),
        _parts(r"6chrono"),
    ),
    ForbiddenNames(
        9,
        "take memory from malloc or from the workspace, and change no mapping",
        one_of(r"mmap(?:64)? munmap msync modify_ldt"),
    ),
    ForbiddenNames(
        19,
        _OUT,
        one_of(
            r"fclose fread\w* fgets\w* fgetc\w* getc\w* getchar\w* v?f?scanf getline getdelim ungetc rewind fileno\w*",
            r"__isoc(?:99|23)_v?f?scanf (?:__)?p?readv?(?:64|2)?(?:_chk)? l?l?seek(?:64)?",
            r"fseeko?(?:64)? ftello?(?:64)?",
            r"(?:__)?[fl]?x?stat(?:at|x|fs|vfs)?(?:64)? access faccessat posix_f\w+ (?:__)?readlink(?:at)?(?:_chk)?",
            r"getp?p?id gettid get[eg]?[ug]id get(?:sock|peer)\w+ [gs]etsockopt syscall ioctl fcntl(?:64)? close\w*",
            r"flock lockf(?:64)? sem(?:get|op|ctl|timedop) pipe2? eventfd\w* signalfd inotify_\w+ fanotify_\w+",
            r"capset isatty ttyname\w* sysinfo getlog\w+ getpw\w+ v?syslog openlog",
        ),
    ),
)
LIBRARY_CALL = ForbiddenNames(15, "compute it yourself", one_of(r"\S+"))
"""For names that are in neither list."""


def forbidden_by(
    name: str, allowed: re.Pattern[str], tolerated: re.Pattern[str] | None = None
) -> ForbiddenNames | None:
    """The entry that forbids a name; None if the name is allowed or tolerated."""
    if tolerated is not None and tolerated.fullmatch(name):
        return None
    for forbidden in FORBIDDEN:
        if forbidden.has(name):
            return forbidden
    return None if allowed.fullmatch(name) else LIBRARY_CALL
