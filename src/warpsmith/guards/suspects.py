"""The names that serve an attack, by the attack they serve: plain data for `imports` and `trace`.

Names of the runtime (cudaX) and of the driver (cuX) stand side by side: the first are imported, both are traced.
The order decides what a candidate is told that imports several of them: what can hardly be meant well comes first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from warpsmith.guards.symbols import one_of


@dataclass(frozen=True)
class Suspect:
    """Names that serve one kind of attack."""

    attack: int  # of `classes`
    cure: str  # what to do instead; ends the sentence
    names: re.Pattern[str]  # whole names
    parts: re.Pattern[str] | None = None  # components of mangled C++ names, each with its length

    def has(self, name: str) -> bool:
        """Whether a name is one of them."""
        if self.names.fullmatch(name):
            return True
        return self.parts is not None and name.startswith("_Z") and self.parts.search(name) is not None


def _parts(components: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![0-9])(?:{'|'.join(components.split())})")


_OUT = "a kernel reads its inputs and writes its outputs, nothing else"

SUSPECTS = (
    Suspect(
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
    Suspect(
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
    Suspect(
        9,
        "change no code",
        one_of(r"(?:__)?(?:pkey_)?mprotect mremap remap_file_pages __clear_cache __enable_execute_stack"),
    ),
    Suspect(
        16,
        "leave the cache's settings alone",
        one_of(
            r"cu(?:da)?(?:Device|Ctx)SetLimit\w* cu(?:da)?Stream(?:Set|Copy)Attributes?\w*",
            r"cu(?:da)?CtxResetPersistingL2Cache\w*",
        ),
    ),
    Suspect(
        8,
        "launch the kernels themselves: the call is recorded into a graph where that is fair",
        one_of(
            r"cu(?:da)?Stream(?:Begin|End|Update)Capture\w* cu(?:da)?Graph(?!ics)\w+ cu(?:da)?UserObject\w+",
            r"cu(?:da)?ThreadExchangeStreamCaptureMode\w* _Z\w*2at4cuda9CUDAGraph\w*",
        ),
    ),
    Suspect(
        5,
        "launch everything on the stream that the call is given",
        one_of(
            r"cu(?:da)?Stream(?:Create|Destroy|Wait|Write|BatchMem)\w* cu(?:da)?Event(?!Elapsed)\w*",
            r"cu(?:da)?GreenCtx\w+ _Z\w*3c104cuda17getStreamFromPool\w*",
        ),
    ),
    Suspect(
        15,
        "compute it yourself",
        one_of(
            r"(?:__libc_)?dl(?:open|mopen|sym|vsym|close|error)\w* cu(?:blas|dnn|fft|rand|sparse|solver|tensor)\w*",
            r"cblas_\w+ LAPACKE_\w+ [sdczh]?gemm\w*_? (?:mkl|MKL|openblas|dnnl|nccl|nvrtc|nvJitLink|cupti)\w*",
            r"_?Py[A-Z_]\w+ _ZN?K?(?:3c10|2at|5torch|6caffe2|8pybind11)\w*",
            r"cu(?:da)?(?:Library|Module)(?:Load|Unload)\w* cuLink\w+ cudaGetExportTable cuGetExportTable",
        ),
    ),
    Suspect(
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
    Suspect(
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
    Suspect(
        2,
        "read your inputs and nothing else",
        one_of(
            r"process_vm_\w+ process_madvise ptrace dl_iterate_phdr dladdr1? dlinfo _dl_\w+ _r_debug backtrace\w*",
            r"_Unwind_(?:Backtrace|Find\w+|ForcedUnwind) __libc_stack_end __libc_start_main mincore",
        ),
    ),
    Suspect(
        17,
        "do not wait",
        one_of(
            r"(?:clock_)?nanosleep thrd_sleep u?sleep p?poll p?select epoll_\w+ pause sigsuspend sig(?:timed)?wait\w*",
            r"pthread_(?:cond|mutex|rwlock)_(?:timed|clock)\w* sem_(?:timed|clock)wait (?:mtx|cnd)_timed\w+",
        ),
        _parts(r"11this_thread"),
    ),
    Suspect(
        9,
        "a kernel needs no clock",
        one_of(
            r"(?:__)?clock_(?!nanosleep)\w+ clock (?:__)?gettimeofday time times ftime timespec_get getrusage",
            r"settimeofday adjtimex? omp_get_wti(?:me|ck)_? (?:local|gm|mk|c)time(?:_r)? strftime",
            r"cu(?:da)?EventElapsedTime\w* cu(?:da)?Profiler\w+",
        ),
        _parts(r"6chrono"),
    ),
    Suspect(
        9,
        "take memory from malloc or from the workspace, and change no mapping",
        one_of(r"mmap(?:64)? munmap msync modify_ldt"),
    ),
    Suspect(
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
LIBRARY_CALL = Suspect(15, "compute it yourself", one_of(r"\S+"))
"""What neither list knows."""


def suspicion(name: str, allowed: re.Pattern[str], tolerated: re.Pattern[str] | None = None) -> Suspect | None:
    """What a name is suspected of; None where it is allowed, or tolerated although it is a suspect's."""
    if tolerated is not None and tolerated.fullmatch(name):
        return None
    for suspect in SUSPECTS:
        if suspect.has(name):
            return suspect
    return None if allowed.fullmatch(name) else LIBRARY_CALL
