"""The filter as a program, for both machines: a small interpreter stands in for the kernel of the other one.

What the running kernel makes of it is tested in test_sandbox.py.
"""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from warpsmith.evaluator.sandbox import seccomp

PID = 4711
ALLOW = "allow"
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


def verdict(machine: seccomp.Machine, number: int, *arguments: int, arch: int | None = None) -> str:
    """What the filter answers: "allow" or the name of an errno ("0" for done-without-doing)."""
    audit_arch = machine.audit_arch if arch is None else arch
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=IIQ6Q", number, audit_arch, 0, *(a & (2**64 - 1) for a in padded))
    code = list(struct.iter_unpack("=HBBI", seccomp.program(machine, PID)))
    at, accumulator = 0, 0
    while True:
        operation, if_true, if_false, value = code[at]
        at += 1
        if operation == 0x06:
            if value == 0x7FFF0000:
                return ALLOW
            return errno.errorcode.get(value & 0xFFFF, "0")
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
            continue
        tests = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}
        at += if_true if tests[operation] else if_false


def number(machine: seccomp.Machine, name: str) -> int:
    found = {**seccomp.SYSCALLS, **seccomp.CONDITIONAL_SYSCALLS}[name][machine.column]
    assert found is not None
    return found


@pytest.fixture(params=sorted(seccomp.MACHINES))
def machine(request: pytest.FixtureRequest) -> seccomp.Machine:
    return seccomp.MACHINES[request.param]


def test_exactly_the_listed_calls_are_touched(machine: seccomp.Machine) -> None:
    refused = {n[machine.column] for n in seccomp.SYSCALLS.values()} - {None}
    judged = {n[machine.column] for n in seccomp.CONDITIONAL_SYSCALLS.values()}
    assert not refused & judged
    for call in range(600):
        if call in refused:
            assert verdict(machine, call) == "EPERM", call
        elif call not in judged:
            assert verdict(machine, call) == ALLOW, call


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("clone", (0x10000 | 0x100,), ALLOW),
        ("clone", (17,), "EPERM"),
        ("clone", (0x10000 << 32,), "EPERM"),
        ("clone3", (), "ENOSYS"),
        ("seccomp", (), "EPERM"),
        ("sched_setaffinity", (), "0"),
        ("kill", (PID, 9), ALLOW),
        ("kill", (0, 9), "EPERM"),
        ("kill", (-PID, 9), "EPERM"),
        ("tgkill", (PID, 1, 9), ALLOW),
        ("tgkill", (PID + 1, 1, 9), "EPERM"),
        ("prlimit64", (0,), ALLOW),
        ("prlimit64", (PID,), ALLOW),
        ("prlimit64", (PID + 1,), "EPERM"),
        ("prctl", (15,), ALLOW),
        ("prctl", (1,), "EPERM"),
        ("fcntl", (3, 4), ALLOW),
        ("fcntl", (3, 8), "EPERM"),
        ("madvise", (0, 4096, 4), ALLOW),  # MADV_DONTNEED: malloc
        ("madvise", (0, 4096, 14), ALLOW),  # MADV_HUGEPAGE
        ("madvise", (0, 4096, 22), "EPERM"),
        ("madvise", (0, 4096, 23 | 1 << 32), "EPERM"),
        ("ioctl", (3, 0xC020462A), ALLOW),
        ("ioctl", (3, 0x5412), "EPERM"),
        ("ioctl", (3, 0x5412 | 1 << 32), "EPERM"),
    ],
)
def test_arguments_decide(machine: seccomp.Machine, name: str, arguments: tuple[int, ...], expected: str) -> None:
    assert verdict(machine, number(machine, name), *arguments) == expected


def test_numbers_of_another_architecture_are_shut_out(machine: seccomp.Machine) -> None:
    assert verdict(machine, 39, arch=0x40000003) == "EPERM"  # int 0x80
    x32 = verdict(machine, 0x40000000 + 39)
    assert x32 == ("EPERM" if machine.name == "x86_64" else ALLOW)


def test_numbers_agree_with_the_kernel_headers(machine: seccomp.Machine) -> None:
    header = HEADERS[machine.name]
    if not header.exists():
        pytest.skip(f"{header} is not here")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\s*$", header.read_text(), re.MULTILINE)
    truth = {name: int(value) for name, value in found}
    assert len(truth) > 250
    ours = {**seccomp.SYSCALLS, **seccomp.CONDITIONAL_SYSCALLS}
    wrong = [name for name, n in ours.items() if name in truth and truth[name] != n[machine.column]]
    assert not wrong
