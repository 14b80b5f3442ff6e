"""Reports of sanitizers become one sentence each; a report without a summary proves nothing."""

from __future__ import annotations

import pytest

from warpsmith.verification.sanitizers import cpu_report, device_report

STACK = """
=================================================================
==7==ERROR: AddressSanitizer: stack-buffer-overflow on address 0x7f3ec at pc 0x7f bp 0x7f sp 0x7f
WRITE of size 8 at 0x7f3ec thread T1
    #0 0x7f0001 in memcpy ../../asan/asan_interceptors.cpp:827
    #1 0x7f0002 in fill(float*, long) /build/src/kernel.cpp:31:5
    #2 0x7f0003 in launch._omp_fn.0 /build/src/kernel.cpp:44
Address 0x7f3ec is located in stack of thread T1 at offset 96 in frame
    #0 0x7f0004 in fill(float*, long) /build/src/kernel.cpp:28
  This frame has 1 object(s):
    [32, 96) 'kept' (line 29) <== Memory access at offset 96 overflows this variable
SUMMARY: AddressSanitizer: stack-buffer-overflow /build/src/kernel.cpp:31 in fill
"""
GLOBAL = """==7==ERROR: AddressSanitizer: global-buffer-overflow on address 0x55 at pc 0x55 bp 0x7f sp 0x7f
READ of size 4 at 0x55 thread T0
    #0 0x55 in launch kernel.cpp:9
0x55 is located 0 bytes after global variable 'table' defined in 'kernel.cpp:3:14' (0x54) of size 256
"""
HEAP_NEWER = """==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x61 at pc 0x7f bp 0x7f sp 0x7f
READ of size 4 at 0x61 thread T0
    #0 0x7f in launch src/kernel.cpp:12:9
0x61 is located 12 bytes after 400-byte region [0x60,0x61)
"""
ASSERTED = """/usr/include/c++/12/bits/stl_vector.h:1123: reference: Assertion '__n < this->size()' failed.
AddressSanitizer:DEADLYSIGNAL
==7==ERROR: AddressSanitizer: ABRT on unknown address 0x1 (pc 0x7f bp 0x7f sp 0x7f T0)
    #0 0x7f in raise ../sysdeps/raise.c:50
    #1 0x7f in launch kernel.cpp:5
"""
UNDEFINED = """kernel.cpp:7:21: runtime error: shift exponent 40 is too large for 32-bit type 'int'
    #0 0x7f in launch kernel.cpp:7
"""


@pytest.mark.parametrize(
    ("text", "undefined", "says"),
    [
        (STACK, False, ["stack-buffer-overflow", "write of 8 bytes", "'kept'", "kernel.cpp:31 in fill"]),
        (GLOBAL, False, ["global-buffer-overflow", "'table'", "kernel.cpp:9 in launch"]),
        (HEAP_NEWER, False, ["12 bytes past the end of a buffer of 400 bytes", "kernel.cpp:12"]),
        (ASSERTED, False, ["__n < this->size()", "stl_vector.h", "kernel.cpp:5"]),
        (UNDEFINED, True, ["kernel.cpp:7", "shift exponent 40"]),
    ],
)
def test_a_report_of_the_cpu_becomes_a_sentence(text: str, undefined: bool, says: list[str]) -> None:
    report = cpu_report(text, ["kernel.cpp"])
    assert report is not None
    assert report.undefined is undefined
    for part in says:
        assert part in report.sentence, report.sentence
    assert "\n" not in report.sentence
    assert "/build" not in report.sentence


@pytest.mark.parametrize("text", ["", "hello\n", "Segmentation fault\n", "runtime error: of somebody else\n"])
def test_other_output_is_no_report(text: str) -> None:
    assert cpu_report(text, ["kernel.cpp"]) is None


def logged(*lines: str) -> str:
    return "\n".join(f"========= {line}" if line else "=========" for line in ("COMPUTE-SANITIZER", *lines)) + "\n"


MEMCHECK = logged(
    "Invalid __global__ read of size 4 bytes",
    "    at softmax(const float *, float *)+0x1b0 in /build/src/kernel.cu:23",
    "    by thread (0,0,0) in block (63,0,0)",
    "    Access at 0x7f is out of bounds",
    "    and is 1 bytes after the nearest allocation at 0x7e of size 256,000 bytes",
    "    Saved host backtrace up to driver entry point at kernel launch time",
    "        Host Frame: launch in kernel.cu:30 [0x1]",
    "",
    "ERROR SUMMARY: 3 errors",
)
RACECHECK = logged(
    "Warning: Race reported between Read access at other()+0x10 in other.cu:2",
    "    and Write access at other()+0x20 in other.cu:3 [4 hazards]",
    "",
    "Error: Race reported between Write access at softmax(float *)+0x90 in kernel.cu:12",
    "    and Read access at softmax(float *)+0x130 in kernel.cu:15 [64 hazards]",
    "",
    "RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)",
)
INITCHECK = logged(
    "Uninitialized __global__ memory read of size 4 bytes",
    "    at softmax(const float *)+0x50 in kernel.cu:9",
    "    by thread (3,0,0) in block (0,0,0)",
    "",
    "ERROR SUMMARY: 1 error",
)
SYNCCHECK = logged(
    "Barrier error detected. Divergent thread(s) in warp.",
    "    at softmax(float *)+0x70 in kernel.cu:14",
    "    by thread (0,0,0) in block (0,0,0)",
    "",
    "ERROR SUMMARY: 20 errors",
)


@pytest.mark.parametrize(
    ("text", "errors", "says"),
    [
        (MEMCHECK, 3, ["Invalid __global__ read of size 4 bytes", "kernel.cu:23", "1 bytes after the nearest"]),
        (RACECHECK, 1, ["Race reported between Write", "kernel.cu:12", "kernel.cu:15"]),
        (INITCHECK, 1, ["Uninitialized", "kernel.cu:9"]),
        (SYNCCHECK, 20, ["Divergent thread(s) in warp", "kernel.cu:14"]),
    ],
)
def test_a_report_of_a_gpu_becomes_a_sentence(text: str, errors: int, says: list[str]) -> None:
    report = device_report(text)
    assert report is not None
    assert report.errors == errors
    for part in says:
        assert part in report.sentence, report.sentence
    assert "/build" not in report.sentence


def test_warnings_are_counted_and_are_no_errors() -> None:
    text = RACECHECK.replace("Error: Race", "Warning: Race").replace("(1 error, 1 warning)", "(0 errors, 2 warnings)")
    report = device_report(text)
    assert report is not None
    assert (report.errors, report.warnings) == (0, 2)
    assert "Race reported" in report.sentence


def test_nothing_found_is_a_report_and_no_summary_is_none() -> None:
    clean = device_report(logged("ERROR SUMMARY: 0 errors"))
    assert clean is not None
    assert (clean.errors, clean.sentence) == (0, "")
    assert device_report(logged("Error: No attachable process found. compute-sanitizer timed-out.")) is None
    assert device_report("") is None
