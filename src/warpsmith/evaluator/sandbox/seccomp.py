"""The system-call filter of a candidate's process.

For: a computation with threads that reads and writes memory and files it was given. Not for: a whole
program; the filter allows what it does not name (CUDA drivers issue system calls nobody has listed), so
it narrows the process and is no allowlist. A refused call fails with EPERM rather than killing the
process, so that a library that merely tries something fails softly.

The filter runs on the numbers below, for x86_64 and aarch64; on any other machine `install` refuses.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from dataclasses import dataclass

SYSCALLS: dict[str, tuple[int | None, int | None]] = {
    # (x86_64, aarch64); None where the machine has no such call.
    # New connections, and local sockets that reach a daemon. Descriptors already open keep working.
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    # New programs and processes, and leaving the process group that the supervisor kills.
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
    "setpgid": (109, 154),
    "setsid": (112, 157),
    "unshare": (272, 97),
    "setns": (308, 268),
    # Other processes: their memory, descriptors, signals and placement.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "tkill": (200, 130),
    "migrate_pages": (256, 238),
    # A timer can send this process the signal that continues a stopped process (see `host_client.ProcessPause`).
    "timer_create": (222, 107),
    # One long system call that copies, reads or clears memory goes on while the process is stopped (`ProcessPause`).
    "vmsplice": (278, 75),
    "splice": (275, 76),
    "tee": (276, 77),
    "sendfile": (40, 71),
    "copy_file_range": (326, 285),
    "readahead": (187, 213),
    "mlock": (149, 228),
    "mlock2": (325, 284),
    "mlockall": (151, 230),
    # Moves a mapping to another part of its file.
    "remap_file_pages": (216, 234),
    # System V and POSIX message objects: memory that outlives the process or is shared by key.
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    # Owners, modes and times of files: Landlock does not see these.
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    # Mounts, and ways to a file around its path.
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # Large kernel interfaces with a history of vulnerabilities, and keys.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "personality": (135, 92),
    # The machine itself: also refused where the process is still root.
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    # Identity and privilege.
    "setuid": (105, 146),
    "setgid": (106, 144),
    "setreuid": (113, 145),
    "setregid": (114, 143),
    "setresuid": (117, 147),
    "setresgid": (119, 149),
    "setgroups": (116, 159),
    "setfsuid": (122, 151),
    "setfsgid": (123, 152),
    "capset": (126, 91),
    # Scheduling: a candidate is timed as the harness placed it, and must not slow the other side.
    "setpriority": (141, 140),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
}
"""Calls refused whatever their arguments."""

CONDITIONAL_SYSCALLS: dict[str, tuple[int, int]] = {
    "seccomp": (317, 277),
    "clone": (56, 220),
    "clone3": (435, 435),
    "sched_setaffinity": (203, 122),
    "kill": (62, 129),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "prlimit64": (302, 261),
    "move_pages": (279, 239),
    "prctl": (157, 167),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "madvise": (28, 233),
}
"""Calls whose answer depends on their arguments or is not EPERM (see `_conditional`), and the one `install` makes."""

PROGRAMS = frozenset(
    {
        *("execve", "execveat", "fork", "vfork", "clone", "clone3"),
        *("chmod", "fchmod", "fchmodat", "fchmodat2", "utime", "utimes", "futimesat", "utimensat"),
        *("splice", "tee", "sendfile", "copy_file_range", "readahead", "madvise"),
    }
)
"""What compilers and their drivers need, allowed to a process that may start programs."""
FAKED = frozenset(("setpgid", "setsid"))
"""For the same process, these report success and do nothing: no process leaves the group that is killed as one."""

_CLONE_THREAD = 0x10000
_SIGCONT = 18  # on both machines
_FORBIDDEN_PRCTL = (1, 4, 22)  # PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP
_FORBIDDEN_FCNTL = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX: they send signals to any process
_FORBIDDEN_IOCTL = (0x8901, 0x8902, 0x5412, 0x541C)  # FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX

_FORBIDDEN_MADVISE = (22, 23, 25)  # MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_COLLAPSE

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_REFUSE = _ERRNO | errno.EPERM
_OFFSET_NUMBER, _OFFSET_ARCH, _OFFSET_ARGUMENTS = 0, 4, 16
_X32_BIT = 0x40000000

_SET_MODE_FILTER, _FLAG_ALL_THREADS, _FLAG_SPEC_ALLOW = 1, 1, 4
_PR_SET_NO_NEW_PRIVS = 38


@dataclass(frozen=True)
class Machine:
    """One architecture the filter is written for."""

    name: str
    column: int  # of the tables above
    audit_arch: int  # what the kernel writes into seccomp_data.arch


MACHINES = {
    "x86_64": Machine("x86_64", 0, 0xC000003E),
    "aarch64": Machine("aarch64", 1, 0xC00000B7),
}


@dataclass(frozen=True)
class _Instruction:
    """One classic BPF instruction; jumps count instructions from the next one."""

    code: int
    value: int
    if_true: int = 0
    if_false: int = 0

    def pack(self) -> bytes:
        return struct.pack("=HBBI", self.code, self.if_true, self.if_false, self.value)


def _argument(index: int) -> _Instruction:
    # Both machines are little-endian, so this is the low half of the 64-bit register. Every argument checked
    # here is an int or unsigned int to the kernel, which reads the same half.
    return _Instruction(_LOAD, _OFFSET_ARGUMENTS + 8 * index)


def _when(number: int, body: list[_Instruction]) -> list[_Instruction]:
    """`body`, which must return, for this call; the next instruction for any other."""
    return [_Instruction(_JUMP_EQUAL, number, 0, len(body)), *body]


def _answer(value: int) -> list[_Instruction]:
    return [_Instruction(_RETURN, value)]


def _among(index: int, values: tuple[int, ...], then: int, otherwise: int) -> list[_Instruction]:
    """Return `then` if the argument is one of `values`, else `otherwise`."""
    tests = [_Instruction(_JUMP_EQUAL, v, len(values) - i) for i, v in enumerate(values)]
    return [_argument(index), *tests, *_answer(otherwise), *_answer(then)]


def _unless_continuing(index: int) -> list[_Instruction]:
    """Refuse SIGCONT: sent all the time, it would keep the judge from stopping this process."""
    return [_argument(index), _Instruction(_JUMP_EQUAL, _SIGCONT, 0, 1), *_answer(_REFUSE)]


def _conditional(pid: int) -> dict[str, list[_Instruction]]:
    itself, itself_or_zero = (pid,), (0, pid)
    thread = [_argument(0), _Instruction(_JUMP_SET, _CLONE_THREAD, 1, 0), *_answer(_REFUSE), *_answer(_ALLOW)]
    return {
        "ioctl": _among(1, _FORBIDDEN_IOCTL, _REFUSE, _ALLOW),
        "fcntl": _among(1, _FORBIDDEN_FCNTL, _REFUSE, _ALLOW),
        "prctl": _among(0, _FORBIDDEN_PRCTL, _REFUSE, _ALLOW),
        "madvise": _among(2, _FORBIDDEN_MADVISE, _REFUSE, _ALLOW),
        "seccomp": _answer(_REFUSE),
        "clone": thread,
        # Its flags lie in memory, where a filter cannot look; glibc falls back to clone on ENOSYS alone.
        "clone3": _answer(_ERRNO | errno.ENOSYS),
        # Reports success and does nothing: a refusal makes pthread_create fail for a thread with an affinity,
        # and libgomp (OMP_PROC_BIND) then ends the process.
        "sched_setaffinity": _answer(_ERRNO),
        "kill": [*_unless_continuing(1), *_among(0, itself, _ALLOW, _REFUSE)],
        "tgkill": [*_unless_continuing(2), *_among(0, itself, _ALLOW, _REFUSE)],
        "rt_sigqueueinfo": [*_unless_continuing(1), *_among(0, itself, _ALLOW, _REFUSE)],
        "rt_tgsigqueueinfo": [*_unless_continuing(2), *_among(0, itself, _ALLOW, _REFUSE)],
        "prlimit64": _among(0, itself_or_zero, _ALLOW, _REFUSE),
        "move_pages": _among(0, itself_or_zero, _ALLOW, _REFUSE),
    }


def program(machine: Machine, pid: int, programs: bool = False) -> bytes:
    """The filter for a process with this id, as an array of struct sock_filter; `programs`: it may start some."""
    free = PROGRAMS if programs else frozenset[str]()
    code = [
        _Instruction(_LOAD, _OFFSET_ARCH),
        # Another architecture's numbers (int 0x80 on x86) mean other calls: none of them is let through.
        _Instruction(_JUMP_EQUAL, machine.audit_arch, 1, 0),
        *_answer(_REFUSE),
        _Instruction(_LOAD, _OFFSET_NUMBER),
    ]
    if machine.name == "x86_64":
        code += [_Instruction(_JUMP_AT_LEAST, _X32_BIT, 0, 1), *_answer(_REFUSE)]
    for name, body in _conditional(pid).items():
        if name not in free:
            code += _when(CONDITIONAL_SYSCALLS[name][machine.column], body)
    for name, numbers in SYSCALLS.items():
        number = numbers[machine.column]
        if number is not None and name not in free:
            code += _when(number, _answer(_ERRNO if programs and name in FAKED else _REFUSE))
    code += _answer(_ALLOW)
    return b"".join(instruction.pack() for instruction in code)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(*, programs: bool = False) -> bool:
    """Filter this process for good; True when every thread of it is covered, False when only this one is.

    Raises OSError where the kernel (or an outer sandbox) does not allow a filter or the machine is neither
    x86_64 nor aarch64. Sets no_new_privs, which the kernel asks for.
    """
    machine = MACHINES.get(platform.machine())
    if machine is None or not sys.platform.startswith("linux"):
        raise OSError(errno.ENOSYS, f"no system-call filter for {sys.platform} on {platform.machine()}")
    number = CONDITIONAL_SYSCALLS["seccomp"][machine.column]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.prctl(ctypes.c_int(_PR_SET_NO_NEW_PRIVS), *map(ctypes.c_ulong, (1, 0, 0, 0)))
    packed = program(machine, os.getpid(), programs)
    argument = _Program(len(packed) // 8, packed)
    # Without SPEC_ALLOW kernels before 5.16 turn speculative store bypass off for a filtered process, and
    # the candidate would be timed on a slower machine than its baseline.
    for flags in (_FLAG_ALL_THREADS | _FLAG_SPEC_ALLOW, _FLAG_ALL_THREADS, 0):
        result = libc.syscall(
            ctypes.c_long(number),
            ctypes.c_ulong(_SET_MODE_FILTER),
            ctypes.c_ulong(flags),
            ctypes.byref(argument),
        )
        if result == 0:
            return flags != 0
    reason = ctypes.get_errno()
    raise OSError(reason, f"seccomp: {os.strerror(reason)}")
