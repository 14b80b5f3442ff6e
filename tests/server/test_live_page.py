"""The live page in a real Chromium, driven by Playwright: one server and one browser for all of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from tests.report.browser import find
from tests.report.synthetic import NASTY, Maker, make_run
from tests.server.live_runs import go_on, open_session
from warpsmith.prompts.renderer import render
from warpsmith.search.stop_request import NAME as STOP
from warpsmith.server.live_page import LivePage, names_of, serving
from warpsmith.server.served_runs import ServedRuns

LONG_MS = 30_000  # for what takes a second on a quiet machine
TOKEN = "a-token"
PHONE = ViewportSize(width=390, height=800)
DESK = ViewportSize(width=1280, height=900)


@dataclass
class Reader:
    """A page in the browser, with everything it complained about."""

    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)  # requests to other servers

    def open(self, path: str = "") -> None:
        """Load a page and wait until it follows its server."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}{path}")
        self.page.wait_for_selector('html[data-connected="yes"][data-late="0"]', timeout=LONG_MS)

    def until(self, script: str) -> None:
        """Wait until an expression is true in the page; the page's policy refuses to wait for text as a program."""
        until(self.page, script)

    def say(self, kind: str, text: str) -> None:
        """The page wrote to its console."""
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def ask(self, url: str) -> None:
        """The page asked a server."""
        if url.startswith("http") and not url.startswith(self.address):
            self.foreign.append(url)

    def trials(self) -> int:
        """The rows of the table of candidates."""
        return int(self.page.evaluate("document.querySelectorAll('#candidates tbody tr').length"))


def until(page: Page, script: str) -> None:
    deadline = time.monotonic() + LONG_MS / 1000
    while not page.evaluate(script):
        assert time.monotonic() < deadline, f"never came true: {script}"
        page.wait_for_timeout(50)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = find()
    if path is None:
        pytest.skip("no Chromium on this machine; install Debian's chromium package to run the browser tests")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def served(runs: Path) -> Iterator[str]:
    with serving(LivePage(ServedRuns([runs]), TOKEN, names_of("127.0.0.1")), "127.0.0.1", 0) as port:
        yield f"http://127.0.0.1:{port}/dashboard"


@pytest.fixture
def reader(chromium: Browser, served: str) -> Iterator[Reader]:
    with_page = chromium.new_context(viewport=DESK)
    made = Reader(with_page.new_page(), served)
    made.page.on("pageerror", lambda fault: made.complaints.append(str(fault)))
    made.page.on("console", lambda said: made.say(said.type, said.text))
    made.page.on("request", lambda sent: made.ask(sent.url))
    made.page.on("dialog", lambda shown: made.complaints.append(f"a dialog: {shown.message}"))
    yield made
    with_page.close()


SHOWN = """(() => {
  const copy = document.getElementById("main").cloneNode(true);
  copy.querySelectorAll(".age").forEach((each) => each.remove());
  return copy.innerText + [...copy.querySelectorAll("svg *")].map((e) => e.getAttribute("d") || "").join(" ");
})()"""


def test_a_run_is_watched_from_first_to_last_across_a_kill_and_a_resume(reader: Reader, runs: Path) -> None:
    trials, folder, page = 200, runs / "softmax-1", reader.page
    reader.open()
    assert "no run in this folder yet" in page.inner_text("#runs")

    process = subprocess.Popen([sys.executable, "-m", "tests.server.live_runs", str(folder), str(trials)])
    try:
        page.wait_for_selector("#runs tbody tr", timeout=LONG_MS)
        assert "running" in page.inner_text("#runs tbody")
        page.click("#runs tbody a")
        reader.until("document.querySelectorAll('#candidates tbody tr').length >= 40")
        assert "Running" in page.inner_text("#now-state")
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    reader.until("document.getElementById('now-state').innerText.includes('Not running')")
    seen = reader.trials()
    assert 40 <= seen < trials

    with open_session(folder, trials) as session:
        until(page, "document.getElementById('now-state').innerText.includes('Running')")
        go_on(session, trials)
    reader.until(f"document.querySelectorAll('#candidates tbody tr').length === {trials}")
    reader.until("document.getElementById('now-state').innerText.includes('all trials are spent')")
    reader.until("document.getElementById('headline').innerText.includes('stopped after 200 trials')")

    reader.until("document.documentElement.dataset.late === '0'")
    # The page that grew with the run shows what a page shows that is loaded now.
    grown = page.evaluate(SHOWN)
    reader.open("/runs/runs/softmax-1")
    assert page.evaluate(SHOWN) == grown
    assert (reader.complaints, reader.foreign) == ([], [])


def test_what_is_under_way_is_shown_with_prompt_and_reply(reader: Reader, runs: Path) -> None:
    page = reader.page
    with open_session(runs / "one", 9) as session:
        go_on(session, 3)
        reader.open("/runs/runs/one")
        until(page, "document.getElementById('now-doing').innerText.includes('No brief is open')")
        brief = session.ask()
        assert brief is not None
        session.sent(brief, render(brief))
        page.wait_for_selector("#now-doing details", timeout=LONG_MS)
        page.click("#now-doing summary")
        page.wait_for_selector("#now-doing details pre", timeout=LONG_MS)
        assert "softmax" in page.inner_text("#now-doing details")

        session.answer(brief, Maker(lines=8).reply(brief))
        page.wait_for_selector("#now-doing a[href='#trial-4']", timeout=LONG_MS)
        assert page.locator("#now-doing details").count() == 0
        page.click("#now-doing a")
        page.get_by_role("tab", name="Reply").click(timeout=LONG_MS)
        assert "strategy:" in page.inner_text("[role=tabpanel]")
        assert "pending" in page.inner_text("dialog header")
        (job,) = session.pending()
        session.judge(job, Maker(lines=8).verdict(job.candidate))
        # The open sheet follows, on the same tab.
        reader.until("!document.querySelector('dialog header').innerText.includes('pending')")
        page.wait_for_selector("[role=tab][aria-selected=true] >> text=Reply", timeout=LONG_MS)
    assert reader.complaints == []


def test_focus_filter_and_open_parts_outlive_an_update(reader: Reader, runs: Path) -> None:
    page = reader.page
    with open_session(runs / "one", 60) as session:
        go_on(session, 20)
        reader.open("/runs/runs/one")
        page.click("#cost details.data > summary")
        page.fill("#candidates input[type=search]", "mutation")
        page.focus("#lineage .mark[href='#trial-7']")
        before = page.evaluate("window.scrollY")
        go_on(session, 30)
        page.wait_for_selector("#lineage .mark[href='#trial-30']", timeout=LONG_MS, state="attached")
        assert page.evaluate("document.activeElement.getAttribute('href')") == "#trial-7"
        assert page.evaluate("Boolean(document.activeElement.closest('#lineage'))")
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.getAttribute('href')") == "#trial-8"
        assert page.evaluate("document.querySelector('#cost details.data').open")
        shown = page.locator("#candidates [role=status]", has_text="of 30 trials")  # drawn after what is in sight
        shown.wait_for(timeout=LONG_MS)
        assert page.input_value("#candidates input[type=search]") == "mutation"
        assert abs(page.evaluate("window.scrollY") - before) < 200

        page.keyboard.press("Enter")
        page.wait_for_selector("dialog[open] [role=tab]")
        page.keyboard.press("Escape")
        assert not page.evaluate("document.querySelector('dialog').open")
    assert reader.complaints == []


def test_what_is_out_of_sight_is_drawn_when_a_reader_comes_near_it(reader: Reader, runs: Path) -> None:
    make_run(runs / "one", 20, Maker(lines=4))
    page = reader.page
    page.add_init_script("window.requestIdleCallback = () => 0")  # the browser always has something else to do
    page.goto(f"{reader.address}/runs/runs/one")
    page.wait_for_selector('html[data-drawn="yes"][data-connected="yes"] #curve .mark', timeout=LONG_MS)
    reader.until("document.documentElement.dataset.seq !== undefined")  # the first patch is drawn
    assert "Candidates" in page.inner_text("nav.contents")
    assert page.locator("#candidates table").count() == 0
    page.click("nav.contents >> text=Candidates")
    reader.until("document.querySelectorAll('#candidates tbody tr').length === 20")
    assert reader.complaints == []


def test_differences_stand_side_by_side_where_there_is_room(reader: Reader, runs: Path) -> None:
    make_run(runs / "one", 30, Maker(lines=8))
    page = reader.page
    reader.open("/runs/runs/one")
    number = page.evaluate("[...document.querySelectorAll('#candidates tbody tr')].find(e => e.cells[6].textContent)"
                           ".cells[0].textContent")  # fmt: skip
    reader.open(f"/runs/runs/one#trial-{number}")
    page.get_by_role("tab", name="Diff").click(timeout=LONG_MS)
    first, second = (page.locator(f"pre.sides .line.{kind}").first.bounding_box() for kind in ("removed", "added"))
    assert first
    assert second
    assert second["x"] > first["x"] + first["width"] - 2
    page.get_by_label("Side by side").uncheck()
    assert page.locator("pre.sides").count() == 0
    page.set_viewport_size(PHONE)
    reader.open(f"/runs/runs/one#trial-{number}")
    page.get_by_role("tab", name="Diff").click(timeout=LONG_MS)
    assert page.locator("pre.diff:not(.sides)").count() == 1


def test_runs_are_laid_over_each_other(reader: Reader, runs: Path) -> None:
    for seed in range(3):
        make_run(runs / f"run-{seed}", 20, Maker(lines=4, seed=seed))
    page = reader.page
    reader.open()
    until(page, "document.querySelectorAll('#runs tbody tr').length === 3")
    for name in ("run-0", "run-2"):
        page.get_by_label(f"Lay runs/{name} over others").focus()
        page.keyboard.press("Space")
    until(page, "document.querySelectorAll('#over .plot path.series').length === 2")
    page.get_by_label("Against").select_option("cost")
    assert "US dollars" in (page.text_content("#over svg[role=group]") or "")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    until(page, "document.querySelectorAll('#over .plot path.series').length === 2")
    assert (reader.complaints, reader.foreign) == ([], [])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_words_stay_words_on_a_phone_in_light_and_dark(
    reader: Reader, runs: Path, scheme: Literal["light", "dark"]
) -> None:
    name = "<img src=x onerror=document.title='taken'>"
    make_run(runs / name, 12, Maker(lines=8, hostile=True))
    page = reader.page
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme=scheme)
    reader.open()
    page.wait_for_selector("#runs tbody tr", timeout=LONG_MS)
    assert name in page.inner_text("#runs tbody a")
    _check_narrow(reader)
    page.click("#runs tbody a")
    page.wait_for_selector('html[data-connected="yes"] #candidates tbody tr', timeout=LONG_MS)
    _check_narrow(reader)
    brightness = page.evaluate(
        "Math.max(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number))"
    )
    assert brightness > 200 if scheme == "light" else brightness < 60
    trial = page.evaluate("[...document.querySelectorAll('#candidates tbody tr')]"
                          ".find(e => e.textContent.includes('valid')).cells[0].textContent")  # fmt: skip
    page.click(f"#candidates a[href='#trial-{trial}']")
    for tab in ("Prompt", "Reply", "Code"):
        page.get_by_role("tab", name=tab).click(timeout=LONG_MS)
    page.get_by_role("tab", name="Reply").click()
    assert NASTY.split("&lt;")[0] in page.inner_text("[role=tabpanel]")
    page.wait_for_timeout(200)
    assert "taken" not in page.title().partition(":")[0]
    assert page.evaluate("document.querySelector('main img, main script, dialog img, dialog script')") is None
    assert (reader.complaints, reader.foreign) == ([], [])


def _check_narrow(reader: Reader) -> None:
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    outside = reader.page.evaluate(
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, svg')"
        f" && e.getBoundingClientRect().right > {PHONE['width']} + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert outside == []


def test_stop_needs_the_token(reader: Reader, runs: Path) -> None:
    page, folder = reader.page, runs / "one"
    with open_session(folder, 20) as session:
        go_on(session, 4)
        reader.open("/runs/runs/one")
        page.click("#now-act summary")
        page.get_by_role("textbox", name="Token").fill("a guess")
        page.keyboard.press("Enter")
        page.wait_for_selector("#now-act [role=status] >> text=need the token", timeout=LONG_MS)
        assert not (folder / STOP).exists()
        reader.open(f"/runs/runs/one#token={TOKEN}")
        assert TOKEN not in page.url
        page.click("#now-act summary")
        reader.until(f"document.querySelector('#now-act input').value === '{TOKEN}'")  # a browser tells of it later
        page.get_by_role("button", name="Stop the run").click()
        page.wait_for_selector("#now-act [role=status] >> text=The run stops", timeout=LONG_MS)
        assert (folder / STOP).exists()


def test_a_lost_server_is_said_and_found_again(chromium: Browser, runs: Path) -> None:
    make = _server(runs)
    with open_session(runs / "one", 20) as session:
        go_on(session, 5)
        with make(0) as port:
            page = chromium.new_page()
            page.goto(f"http://127.0.0.1:{port}/dashboard/runs/runs/one")
            page.wait_for_selector('html[data-connected="yes"]', timeout=LONG_MS)
        page.wait_for_selector("[role=alert] >> text=does not answer", timeout=LONG_MS)
        go_on(session, 9)
        with make(port):  # another server: its numbers of texts are others
            reached = "document.querySelectorAll('#candidates tbody tr').length === 9"
            until(page, reached)
            page.click("#candidates a[href='#trial-2']")
            page.wait_for_selector("dialog pre.code, dialog pre.prose", timeout=LONG_MS)
            page.close()


def _server(runs: Path) -> Callable[[int], AbstractContextManager[int]]:
    return lambda port: serving(LivePage(ServedRuns([runs]), TOKEN, names_of("127.0.0.1")), "127.0.0.1", port)
