"""The recorder of CUDA calls, held against a library that calls back as CUPTI does; the real one needs a GPU."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from warpsmith.evaluator.candidate.cupti import CudaCallTracer

DRIVER, RUNTIME = 1, 2

STAND_IN = """
#include <stddef.h>
#include <stdint.h>
typedef struct {
  int site;
  const char *function;
  const void *parameters;
  void *returned;
  const char *symbol;
  void *context;
  uint32_t context_id;
  uint64_t *correlation;
  uint32_t correlation_id;
} data_t;
typedef void (*callback_t)(void *, int, uint32_t, const data_t *);
static callback_t callback;
static int enabled[8];
static int refusal;
void refuse(int code) { refusal = code; }
int cuptiSubscribe(void **subscriber, callback_t given, void *user) {
  callback = given;
  *subscriber = (void *)&callback;
  return refusal;
}
int cuptiEnableDomain(uint32_t enable, void *subscriber, int domain) {
  enabled[domain] = subscriber == (void *)&callback && enable;
  return 0;
}
int cuptiUnsubscribe(void *subscriber) { callback = NULL; return 0; }
int cuptiGetResultString(int code, const char **text) { *text = "CUPTI_ERROR_SOMETHING"; return 0; }
static const void *parameters;
void pass_(const void *given) { parameters = given; }
static void at(int domain, int site, const char *function, const char *symbol) {
  data_t data = {site, function, parameters, NULL, symbol, NULL, 1, NULL, 7};
  if (callback && enabled[domain]) callback(NULL, domain, 42, &data);
}
void enter(int domain, const char *function, const char *symbol) { at(domain, 0, function, symbol); }
void leave(int domain, const char *function) { at(domain, 1, function, NULL); }
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A new one for each test: it has state."""
    source, made = tmp_path / "stand_in.c", tmp_path / "libcupti.so"
    source.write_text(STAND_IN)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(made), str(source)], check=True, timeout=60)
    return made


def calling(
    made: ctypes.CDLL, domain: int, name: str, symbol: str = "", inner: Callable[[], None] | None = None
) -> None:
    """One call of the driver or runtime, with what happens inside it."""
    made.enter(domain, name.encode(), symbol.encode() or None)
    if inner is not None:
        inner()
    made.leave(domain, name.encode())


def test_a_launch_is_named_with_its_kernel_and_not_with_what_the_runtime_does_inside(library: Path) -> None:
    made = ctypes.CDLL(str(library))
    recorder = CudaCallTracer(str(library))
    recorder.start()

    def candidate() -> int:
        for _ in range(2):
            calling(
                made,
                RUNTIME,
                "cudaLaunchKernel_v7000",
                "_Z3runPf",
                lambda: calling(made, DRIVER, "cuLaunchKernel", "_Z3runPf", lambda: calling(made, DRIVER, "cuInner")),
            )
        calling(made, DRIVER, "cuStreamCreate")
        calling(made, DRIVER, "cuLaunchKernelEx", "other")
        return 3

    assert recorder.traced(candidate)() == 3
    recorder.stop()

    assert recorder.problem == ""
    assert list(recorder.calls) == ["cudaLaunchKernel_v7000", "cuStreamCreate", "cuLaunchKernelEx"]
    assert list(recorder.kernels) == ["_Z3runPf", "other"]


class Launch(ctypes.Structure):
    """The arguments of cuLaunchKernel."""

    _fields_ = [
        ("function", ctypes.c_void_p),
        *[(name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")],
        ("stream", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
    ]


class RuntimeLaunch(ctypes.Structure):
    """Those of cudaLaunchKernel."""

    _fields_ = [
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("arguments", ctypes.c_void_p),
        ("shared", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
    ]


class Configuration(ctypes.Structure):
    """What cuLaunchKernelEx points to."""

    _fields_ = [("sizes", ctypes.c_uint * 7), ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p)]


@pytest.mark.parametrize(("stream", "elsewhere"), [(0, False), (1, False), (0x5000, False), (2, True), (0x7000, True)])
def test_a_launch_on_another_stream_than_the_harness_s_is_seen(library: Path, stream: int, elsewhere: bool) -> None:
    made = ctypes.CDLL(str(library))
    recorder = CudaCallTracer(str(library), stream=0x5000)
    recorder.start()
    configuration = Configuration(stream=stream)
    pointer = ctypes.c_void_p(ctypes.addressof(configuration))
    launches = (
        (DRIVER, "cuLaunchKernel", Launch(stream=stream)),
        (DRIVER, "cuLaunchKernelEx", pointer),
        (RUNTIME, "cudaLaunchKernel_v7000", RuntimeLaunch(stream=stream)),
    )

    def candidate() -> int:
        for domain, name, arguments in launches:
            made.pass_(ctypes.byref(arguments))
            calling(made, domain, name, f"kernel of {name}")
        return 0

    recorder.traced(candidate)()

    assert list(recorder.elsewhere) == [f"kernel of {name}" for _, name, _ in launches if elsewhere]


def test_a_launch_on_a_thread_s_own_default_stream_is_seen(library: Path) -> None:
    made = ctypes.CDLL(str(library))
    recorder = CudaCallTracer(str(library), stream=0x5000)
    recorder.start()
    arguments = RuntimeLaunch()
    made.pass_(ctypes.byref(arguments))

    def candidate() -> int:
        calling(made, RUNTIME, "cudaLaunchKernel_ptsz_v7000", "kernel")
        return 0

    recorder.traced(candidate)()

    assert list(recorder.elsewhere) == ["kernel"]


def test_only_the_candidate_s_call_is_recorded(library: Path) -> None:
    made = ctypes.CDLL(str(library))
    recorder = CudaCallTracer(str(library))
    calling(made, DRIVER, "cuBefore")
    recorder.start()
    calling(made, DRIVER, "cuCtxSynchronize")
    recorder.traced(lambda: 0)()
    calling(made, RUNTIME, "cudaGetLastError_v3020")
    recorder.stop()

    def late() -> int:
        calling(made, DRIVER, "cuAfter")
        return 0

    recorder.traced(late)()

    assert (list(recorder.calls), list(recorder.kernels), recorder.problem) == ([], [], "")


def test_names_that_do_not_fit_into_a_reply_are_a_problem(library: Path) -> None:
    made = ctypes.CDLL(str(library))
    recorder = CudaCallTracer(str(library))
    recorder.start()

    def candidate() -> int:
        for number in range(100):
            calling(made, DRIVER, "cuLaunchKernel", f"kernel{number}_" + "x" * 4000)
        return 0

    recorder.traced(candidate)()

    assert recorder.problem == "more names than fit into one reply"
    assert 10 < len(recorder.kernels) < 100


def test_a_refusal_is_told_and_the_call_is_made_all_the_same(library: Path) -> None:
    ctypes.CDLL(str(library)).refuse(35)
    recorder = CudaCallTracer(str(library))
    recorder.start()

    assert recorder.traced(lambda: 5)() == 5
    recorder.stop()
    assert recorder.problem == "cuptiSubscribe: CUPTI_ERROR_SOMETHING"


@pytest.mark.parametrize(("path", "says"), [("", "libcupti was not found"), ("/nowhere/libcupti.so", "cannot open")])
def test_a_library_that_is_not_there_is_told(path: str, says: str) -> None:
    recorder = CudaCallTracer(path)
    recorder.start()

    assert recorder.traced(lambda: 5)() == 5
    recorder.stop()
    assert says in recorder.problem
