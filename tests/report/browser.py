"""A real Chromium without a window, driven over a pipe by its DevTools protocol: enough to open a file and use it.

No dependency: messages are JSON between NUL bytes on two file descriptors. Everything the page asks the network for and
everything it complains about is kept, so that a test can say that there was nothing.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--mute-audio", "--no-first-run"),
    *("--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--no-default-browser-check", "--force-color-profile=srgb"),
)
_PATIENCE_S = 60.0
_STARTER = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for number, pipe in zip((3, 4), pipes):
    os.dup2(pipe, number)
os.execv(sys.argv[3], sys.argv[3:])
"""  # Chromium wants its pipe as file descriptors 3 and 4, which may be in use here


def find() -> str | None:
    """A Chromium on this machine."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@dataclass
class Seen:
    """What a page did, besides being looked at."""

    requests: list[str] = field(default_factory=list)  # addresses, the page's own left out
    complaints: list[str] = field(default_factory=list)  # errors and warnings on the console


class Browser:
    """One process with one page. Use as a context manager."""

    def __init__(self, path: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="test-browser-")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        options = (*_OPTIONS, "--remote-debugging-pipe", f"--user-data-dir={self._folder}", "about:blank")
        self._process = subprocess.Popen(
            [sys.executable, "-c", _STARTER, str(to_browser), str(from_browser), path, *options],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "HOME": self._folder},
        )
        os.close(to_browser)
        os.close(from_browser)
        self._kept = b""
        self._number = 0
        self._session = ""
        self.seen = Seen()
        self._address = ""
        self._loaded: set[str] = set()  # documents, by the browser's numbers for them

    def __enter__(self) -> Browser:
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def _begin(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it, with all it has started."""
        os.close(self._write)
        os.close(self._read)
        with contextlib.suppress(ProcessLookupError):  # it has gone by itself
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- the protocol ---

    def call(self, method: str, **parameters: Any) -> Any:
        """Send one command and wait for its answer."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE_S
        while b"\0" not in self._kept:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has gone"
            self._kept += part
        raw, _, self._kept = self._kept.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, about: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent" and about["request"]["url"] != self._address:
            self.seen.requests.append(about["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.seen.complaints.append(str(details.get("exception", {}).get("description") or details["text"]))
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.seen.complaints.append(" ".join(str(each.get("value", "")) for each in about["args"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.seen.complaints.append(about["entry"]["text"])
        elif method == "Page.lifecycleEvent" and about["name"] == "load":
            self._loaded.add(about["loaderId"])

    # --- using it ---

    def size(self, width: int, height: int) -> None:
        """As large as a screen."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def prefers(self, scheme: str) -> None:
        """What the reader's system is set to: "light" or "dark"."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, path: Path, fragment: str = "") -> float:
        """Open a file from disk and wait until it is drawn; the seconds that took."""
        self.call("Page.navigate", url="about:blank")
        self.seen = Seen()
        self._address = path.resolve().as_uri()
        begun = time.perf_counter()
        document = self.call("Page.navigate", url=self._address + fragment)["loaderId"]
        while document not in self._loaded:  # and not the blank page, whose event may come late
            self._next()
        # The script has run by then; two frames later the charts, which wait to learn their width, are painted.
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return time.perf_counter() - begun

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + _PATIENCE_S
        while not self.run(f"Boolean({script})"):
            assert time.monotonic() < deadline, f"never came true: {script}"
            time.sleep(0.02)

    def press(self, key: str, *, shift: bool = False) -> None:
        """One key, as a person presses it."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36}
        codes |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        about = {
            "key": key,
            "code": "Space" if key == " " else key,
            "windowsVirtualKeyCode": codes[key],
            "modifiers": 8 if shift else 0,
        }
        text = {"Enter": "\r", " ": " "}.get(key)
        self.call("Input.dispatchKeyEvent", type="keyDown", **about, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """What it looks like, as PNG; all of the page or what fits the screen."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))
