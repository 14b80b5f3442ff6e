"""A GPU that falls off, without one: a driver library of the test's own that stops answering after some calls."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import socket
import subprocess
import sys
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from warpsmith.evaluator.judge.host_client import HostClient, HostFailed
from warpsmith.evaluator.judge.records import CandidateFailed
from warpsmith.evaluator.protocol import messages

pytestmark = pytest.mark.slow  # minutes in all; `make test-all` runs them

UNKNOWN, NO_DEVICE = 999, 100
PREPARE_CALLS = 40  # more than a host needs to set itself up
DRIVER = """
#include <stdlib.h>
#include <string.h>
/* Answers as a driver would, until as many calls were made as FAKE_CUDA_CALLS says; then FAKE_CUDA_CODE for ever. */
static int calls;
static int answer(void) {
  const char *most = getenv("FAKE_CUDA_CALLS"), *code = getenv("FAKE_CUDA_CODE");
  return most && ++calls > atoi(most) ? atoi(code) : 0;
}
#define PLAIN(name) int name(void) { return answer(); }
#define HANDLE(name) int name(void **out) { *out = (void *)0x1000; return answer(); }
PLAIN(cuInit) PLAIN(cuDeviceGet) PLAIN(cuCtxSetCurrent) PLAIN(cuMemFree_v2) PLAIN(cuMemsetD8Async)
PLAIN(cuEventRecord) PLAIN(cuCtxSynchronize) PLAIN(cuStreamBeginCapture_v2) PLAIN(cuGraphDestroy) PLAIN(cuGraphLaunch)
PLAIN(cuCtxResetPersistingL2Cache) PLAIN(cuCtxSetLimit) PLAIN(cuIpcGetMemHandle) PLAIN(cuMemGetInfo_v2)
PLAIN(cuMemcpyHtoD_v2) PLAIN(cuMemcpyDtoH_v2)
HANDLE(cuDevicePrimaryCtxRetain) HANDLE(cuMemAlloc_v2) HANDLE(cuIpcOpenMemHandle_v2)
HANDLE(cuStreamCreate) HANDLE(cuEventCreate) HANDLE(cuGraphInstantiateWithFlags)
int cuStreamEndCapture(void *stream, void **out) { *out = (void *)0x1000; return answer(); }
int cuGraphGetNodes(void *graph, void *nodes, size_t *count) { *count = 1; return answer(); }
int cuEventElapsedTime_v2(float *out, void *a, void *b) { *out = 0.5f; return answer(); }
int cuGetErrorString(int code, const char **text) { *text = code == 100 ? "no device" : "unknown error"; return 0; }
int cuGetErrorName(int code, const char **text) { *text = code == 100 ? "NO_DEVICE" : "UNKNOWN"; return 0; }
"""
HOST = """import sys
from warpsmith.evaluator.candidate.native_host import main
main(sys.argv[1], [int(a) for a in sys.argv[2:]])
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the false libcuda.so.1."""
    compiler = shutil.which("gcc") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    folder = tmp_path_factory.mktemp("driver")
    source = folder / "cuda.c"
    source.write_text(DRIVER)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    return folder


def made(cls: Any, **given: object) -> Any:
    """A message with nothing in the fields that do not matter."""
    empty: dict[object, object] = {int: 0, str: "", bool: False, float: 0.0}
    hints = typing.get_type_hints(cls)
    return cls(**{name: given.get(name, empty.get(hint, ())) for name, hint in hints.items()})


@contextmanager
def started_host(driver: Path, scratch: Path, calls: int, code: int = UNKNOWN) -> Iterator[HostClient]:
    """The judge's side of a real host, under a driver that answers so many calls."""
    ours, theirs = socket.socketpair()
    page = os.memfd_create("fault-page")
    os.ftruncate(page, mmap.PAGESIZE)
    environ = {"FAKE_CUDA_CALLS": str(calls), "FAKE_CUDA_CODE": str(code), "LD_LIBRARY_PATH": str(driver)}
    payload = json.dumps({"environ": environ, "faults": ""})
    fds = (theirs.fileno(), page)
    command = [sys.executable, "-c", HOST, payload, *map(str, fds)]
    process = subprocess.Popen(command, env={**os.environ, **environ}, pass_fds=fds)
    theirs.close()
    host = HostClient(1, ours.detach(), page, process.pid)
    request = made(
        messages.Prepare,
        kind="cuda",
        ipc_handle="00" * 64,
        flush_bytes=1 << 20,
        scratch=str(scratch),
        scratch_bytes=1 << 20,
        threads=1,
        readable=("/usr", "/lib", "/lib64", str(driver), *map(str, {Path(sys.base_prefix), Path(sys.prefix)})),
    )
    host.send(request)
    try:
        yield host
    finally:
        process.kill()
        process.wait()
        host.close()


def test_a_device_that_is_gone_when_a_host_starts_is_our_fault_and_says_why(driver: Path, tmp_path: Path) -> None:
    with started_host(driver, tmp_path, calls=0, code=NO_DEVICE) as host, pytest.raises(HostFailed, match="no device"):
        host.receive(messages.HostReady, 60.0)


def test_a_device_that_goes_while_a_host_sets_itself_up_is_our_fault_too(driver: Path, tmp_path: Path) -> None:
    with started_host(driver, tmp_path, calls=5) as host, pytest.raises(HostFailed, match="unknown error"):
        host.receive(messages.HostReady, 60.0)


def test_a_host_reports_a_device_that_goes_later_and_lives_to_tell(driver: Path, tmp_path: Path) -> None:
    """Samples without launches, until the device is gone; whatever is asked then is answered with the error."""
    request = made(messages.TimeCalls, rounds=1)
    answers = []
    with started_host(driver, tmp_path, calls=PREPARE_CALLS) as host:
        host.prepared = host.receive(messages.HostReady, 60.0)
        for _ in range(PREPARE_CALLS):
            try:
                sampled = host.ask(request, messages.CallTimes, 60.0)
                answers.append(f"{sampled.device_error} {sampled.device_text}".strip())
            except HostFailed as error:
                answers.append(str(error))
            except CandidateFailed as fate:  # it died
                pytest.fail(f"{fate.status} {fate.reason}")
        host.ask(messages.Ping(), messages.Acknowledged, 60.0)
    assert answers[0] == "0", answers
    assert "unknown error" in answers[-1], answers


def test_an_old_driver_is_said_to_be_old(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    (tmp_path / "old.c").write_text("int cuInit(void) { return 0; }\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "libcuda.so.1", "old.c"], cwd=tmp_path, check=True)
    script = "from warpsmith.evaluator.cuda_driver import Driver\nDriver(0)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert "CudaError: cuDeviceGet: this driver does not have it" in done.stderr
