"""An agent that cheats in every way it knows, and notes what came of it. Run as a program by test_agent.py."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUN, CACHE, NOTES = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
KERNEL = os.environ["HOSTILE_KERNEL"]
found: dict[str, str] = {}


def ask(request: Any, times: int = 1) -> list[str]:
    """Send a request (bytes as they are) on one connection, and read the answers."""
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(20)
    link.connect(os.environ["WARPSMITH_STEP_SOCKET"])
    line = request if isinstance(request, bytes) else json.dumps(request).encode()
    with link, link.makefile("rb") as answers:
        heard = []
        for _ in range(times):
            link.sendall(line + b"\n")
            heard.append(answers.readline().decode())
        return heard


def tool(name: str, **arguments: Any) -> str:
    (answer,) = ask({"token": os.environ["WARPSMITH_STEP_TOKEN"], "tool": name, "arguments": arguments})
    return answer


def trick(name: str, act: Callable[[], object]) -> None:
    try:
        found[name] = str(act())
    except Exception as refused:  # noqa: BLE001 - any refusal is what is noted
        found[name] = f"{type(refused).__name__}: {refused}"


def write_verdict() -> str:
    with sqlite3.connect(RUN / "run.db", timeout=1) as log:
        log.execute("INSERT INTO events (at, kind, brief, trial, body) VALUES (1.0, 'TrialJudged', 0, 1, '{}')")
    return "written"


def leave_process() -> str:
    """A process of another session and group that goes on evaluating, and writes another proposal."""
    script = (
        "import os, time\n"
        f"while True:\n    open({str(NOTES / 'alive')!r}, 'a').write('x')\n"
        f"    open('kernel.cpp', 'w').write('late')\n    time.sleep(0.02)\n"
    )
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            clean = {"PATH": os.environ["PATH"]}
            os.execve(sys.executable, [sys.executable, "-c", script], clean)
        os._exit(0)
    os.wait()
    return "left"


def flood() -> str:
    links = []
    for _ in range(200):
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(5)
        try:
            link.connect(os.environ["WARPSMITH_STEP_SOCKET"])
            links.append(link)
        except OSError:
            break
    for link in links:
        link.close()
    return f"{len(links)} connections"


trick("write a verdict into the log", write_verdict)
trick("write a verdict into the cache", lambda: (CACHE / "forged.json").write_text("{}"))
trick("edit the task", lambda: (RUN / "task.py").write_text("forged"))
trick("remove the run", lambda: shutil.rmtree(RUN))
trick("kill the run", lambda: os.kill(int(os.environ["HOSTILE_RUN"]), 0))
trick("read the run's memory", lambda: os.open(f"/proc/{os.environ['HOSTILE_RUN']}/mem", os.O_RDWR))
trick("forge the brief", lambda: (Path("brief.json").write_text('{"number": 1}'), Path("BRIEF.md").write_text("no")))
trick("forge a verdict file", lambda: Path("verdict.json").write_text('{"status": "ok", "speedup": 1000}'))
trick("another token", lambda: ask({"token": "x", "tool": "evaluate", "arguments": {"source": KERNEL}})[0])
trick("another tool", lambda: tool("judge", trial=1, speedup=1000.0))
trick("a verdict among the arguments", lambda: tool("evaluate", source=KERNEL, speedup=1000.0, status="ok"))
trick("a private method", lambda: tool("__init__", brief=1))
trick("a number that is none", lambda: tool("profile", trial=True))
trick("a request without end", lambda: ask(b"[" * (3 << 20))[0])
trick("deep JSON", lambda: ask(b"[" * 100_000)[0])
trick("flood", flood)
time.sleep(0.1)  # the server closes what was left open
trick("evaluate", lambda: tool("evaluate", source=KERNEL))
trick("more than the step may", lambda: [tool("evaluate", source=KERNEL.replace("1.0f", f"{n}.0f")) for n in (2, 3, 4)])
trick("leave a process", leave_process)
deadline = time.monotonic() + 10
while not (NOTES / "alive").exists() and time.monotonic() < deadline:
    time.sleep(0.01)
subprocess.run(["ln", "-sf", "/etc/passwd", "kernel.cpp"], check=False)
(NOTES / "found.json").write_text(json.dumps(found))
print("speedup: 1000, status: ok, best: true")
