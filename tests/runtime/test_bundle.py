"""Bundles: what is in them, and that a changed one is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.runtime.bundling import DOUBLE, TRIPLE, made_of, put, verified
from tests.searching import answered, judged, new_session, valid
from warpsmith.cli.main import app
from warpsmith.methods.load import load as method_named
from warpsmith.model.errors import RunError, UsageError
from warpsmith.run_log.log import RunLog
from warpsmith.runtime.bundle import MANIFEST, read_bundle, write_bundle
from warpsmith.search.best_kernel import best_contents, write_best


def test_a_bundle_comes_back_as_it_was_written(tmp_path: Path) -> None:
    made = made_of(tmp_path, DOUBLE, TRIPLE)

    bundle = read_bundle(put(tmp_path, made))

    assert bundle.candidate == made.candidate
    assert bundle.manifest.task == "double"
    assert bundle.manifest.contract.startswith('extern "C" int launch(const float* x, float* out, int64_t rows')
    assert [dict(w.axes) for w in bundle.manifest.workloads] == [{"rows": 4, "cols": 8}, {"rows": 3, "cols": 5}]
    assert bundle.manifest.measurement is not None
    (speedup,) = bundle.manifest.measurement.speedups
    assert [speedup.value, speedup.low, speedup.high] == pytest.approx([2.0, 1.9, 2.1])
    assert speedup.baseline == "eager"
    assert bundle.manifest.environment.device == "some CPU"
    assert Path(bundle.task_spec).read_text() == DOUBLE
    assert (bundle.manifest.verified, bundle.certificate, bundle.any_shape) == (False, None, False)


def test_a_certificate_opens_other_shapes(tmp_path: Path) -> None:
    bundle = read_bundle(put(tmp_path, verified(made_of(tmp_path, DOUBLE, TRIPLE))))

    assert bundle.manifest.verified
    assert bundle.any_shape


def _edit(name: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / name).write_text((folder / name).read_text() + "\n")

    return edit


def _turned_into_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("int launch() { return 0; }")


def _manifest(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        body = json.loads((folder / MANIFEST).read_text())
        (folder / MANIFEST).write_text(json.dumps({**body, **changes}))

    return change


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_edit("kernel/kernel.cpp"), "kernel/kernel.cpp is not the file in its manifest"),
        (_edit("task/operator_task.py"), "task/operator_task.py is not the file in its manifest"),
        (_edit("certificate.json"), "certificate.json is not the file in its manifest"),
        (
            lambda folder: (folder / "kernel/kernel.cpp").unlink(),
            "kernel/kernel.cpp cannot be read (No such file or directory); export it again",
        ),
        (lambda folder: (folder / MANIFEST).write_text("{"), "it is not JSON; export it again"),
        (lambda folder: (folder / MANIFEST).unlink(), "there is no bundle in"),
        (_turned_into_a_file, "is a file, and a bundle is a folder"),
        (_manifest(format=99), "another version (format 99, not 1); export it again"),
        (_manifest(task=7), "task is wrong; export it again"),
        (_manifest(files=[]), "is incomplete"),
        (_manifest(files=["kernel/other.cpp"]), "no hash of a file that it needs; export it again"),
        (_manifest(sha256={"../secret": "0"}), "is no file of a bundle"),
        (_manifest(sha256={"/etc/passwd": "0"}), "is no file of a bundle"),
        (_manifest(defines=[["BLOCK", "7"]]), "are not those of candidate"),
    ],
)
def test_a_changed_bundle_is_refused(spoil: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    folder = put(tmp_path, verified(made_of(tmp_path, DOUBLE, TRIPLE)))
    spoil(folder)

    with pytest.raises(UsageError) as error:
        read_bundle(folder)

    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_the_source_beside_a_bundle_is_told_from_it(tmp_path: Path) -> None:
    bundle = put(tmp_path, made_of(tmp_path, DOUBLE, TRIPLE))
    source = bundle.with_suffix(".cpp")
    source.write_text(TRIPLE)

    for named in (source, bundle.with_suffix(".cu")):
        with pytest.raises(UsageError, match=f"; the bundle is {bundle}\\.$"):
            read_bundle(named)


def test_a_run_without_a_best_kernel_is_told_from_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no bundle in .*; `warpsmith optimize` and"):
        read_bundle(tmp_path)
    with (
        RunLog.create(tmp_path / "run"),
        pytest.raises(UsageError, match="a run without a best kernel; "),
    ):
        read_bundle(tmp_path / "run")


def test_only_a_bundle_is_replaced(tmp_path: Path) -> None:
    made = made_of(tmp_path, DOUBLE, TRIPLE)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("keep")

    with pytest.raises(UsageError, match="exists and is no bundle"):
        write_bundle(mine, made)
    write_bundle(tmp_path / "other", made)
    write_bundle(tmp_path / "other", verified(made))

    assert [path.name for path in mine.iterdir()] == ["notes.txt"]
    assert read_bundle(tmp_path / "other").any_shape
    assert not list(tmp_path.glob(".*"))


def test_a_run_leaves_its_best_kernel_as_a_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with new_session(tmp_path / "run", method_named("evoengineer-free")) as session:
        (tmp_path / "run" / "task.py").write_text(DOUBLE)
        with pytest.raises(RunError, match="no valid kernel yet"):
            best_contents(session)
        assert write_best(session) is None
        answered(session, 2)
        judged(session, lambda candidate: valid(candidate, 1.5))

        assert write_best(session) == tmp_path / "run" / "best.cpp"
        assert write_best(session, "else/where") == tmp_path / "run" / "best.cpp"
        assert write_best(session, "named.cpp") == Path("named.cpp")
        best = session.candidate(session.state.best)

    for folder in (tmp_path / "run" / "best", tmp_path / "else" / "where"):
        assert read_bundle(folder).candidate == best
        assert read_bundle(folder).manifest.task_spec == "task/double.py"

    done = CliRunner().invoke(app, ["export", "run", "--out", "third", "--json"], prog_name="warpsmith")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["bundle"], document["candidate"], document["verified"]) == ("third", best.id, False)
    assert document["speedup_interval"]["eager"][0] <= document["speedup"]["eager"] == pytest.approx(1.5)
    assert read_bundle(tmp_path / "third").candidate == best


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["export", "absent"], "absent is neither a run nor a kernel's file"),
        (["export", "kernel.cpp"], "name the task it is for with --task"),
        (["export", "kernel.cpp", "--task", "absent.py"], "there is no task file absent.py"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kernel.cpp").write_text(TRIPLE)

    result = CliRunner().invoke(app, words, prog_name="warpsmith")

    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
