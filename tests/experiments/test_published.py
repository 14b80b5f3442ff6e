"""Whose kernel is for which task, and which claims hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.making import speedup
from tests.searching import valid
from warpsmith.cli.checks import parse_libraries
from warpsmith.cli.json_documents import share_of_floor
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.experiments.best_kernels import KernelChecks, WantedChecks, read_checks
from warpsmith.experiments.published import (
    CheckedClaim,
    ClaimStatus,
    FileCall,
    PublishedKernel,
    assessed,
    check_claims,
    claim_status,
    kernel_files,
    matched,
    read_calls,
    read_claims,
)
from warpsmith.experiments.selection import select
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.certificate import CheckStatus
from warpsmith.model.errors import UsageError
from warpsmith.model.settings import Settings

TASK = """
import torch
from warpsmith import normal, task

@task(x=normal("n"), workloads=[{"n": 512}])
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
"""
KERNEL = "int launch(const float* x, float* out, int64_t n, void*, void*) {"
RIGHT = KERNEL + " for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i]; return 0; }\n"
WRONG = RIGHT.replace("2 * x", "3 * x")


def test_files_are_matched_by_name_and_by_number(tmp_path: Path) -> None:
    names = ("softmax.cu", "19_ReLU.py", "Log-Softmax.cpp", "notes.txt", "mystery.cu", "__init__.py")
    for name in names:
        (tmp_path / name).write_text("x")
    tasks = select(["warpsmith-100@small"])

    found, strangers = matched(kernel_files([str(tmp_path)]), tasks)

    assert {each.path.name: each.task.name for each in found} == {
        "softmax.cu": "softmax@small",
        "19_ReLU.py": "relu@small",
        "Log-Softmax.cpp": "log_softmax@small",
    }
    assert [path.name for path in strangers] == ["mystery.cu"]
    with pytest.raises(UsageError, match="no file or folder"):
        kernel_files([str(tmp_path / "absent")])


def test_the_share_of_a_file_is_that_of_its_verdict(tmp_path: Path) -> None:
    kernel = Candidate((SourceFile("softmax.cpp", RIGHT),), "cpu")
    (slow,), (fast,) = (valid(kernel, 2.0, share=share).workloads for share in (0.4, 0.9))
    verdict = replace(valid(kernel, 2.0), workloads=(replace(slow, workload="small"), fast))
    (task, *_) = select(["warpsmith-100@small"])

    found = assessed(PublishedKernel(tmp_path / "softmax.cpp", task), KernelChecks(verdict, None), None, "eager")

    assert found.share_of_floor == pytest.approx(0.6) == share_of_floor(verdict)


def test_claims_are_read_from_csv(tmp_path: Path) -> None:
    tasks, path = select(["warpsmith-100"]), tmp_path / "claims.csv"
    path.write_text("system,task,speedup\nx,softmax,1.5\nx,19_ReLU,2.0x\n")

    assert read_claims(path, tasks) == {"softmax": 1.5, "relu": 2.0}
    for text, said in (
        ("task,ratio\nsoftmax,1\n", "headings with task and speedup"),
        ("task,speedup\nnothing,1\n", "claims.csv:2: 'nothing' is no task"),
        ("task,speedup\nsoftmax,1\nrelu,fast\n", "claims.csv:3: 'fast' is no speedup"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=said):
            read_claims(path, tasks)
    with pytest.raises(UsageError, match=r"cannot be read \(No such file or directory\); name a CSV file"):
        read_claims(tmp_path / "absent.csv", tasks)


@pytest.mark.parametrize(
    ("claim", "measured", "valid", "said"),
    [
        (1.9, speedup(2.0, 0.1), True, ClaimStatus.HOLDS),
        (2.2, speedup(2.0, 0.1), True, ClaimStatus.HOLDS),
        (0.5, speedup(2.0, 0.1), True, ClaimStatus.HOLDS),
        (2.3, speedup(2.0, 0.1), True, ClaimStatus.TOO_HIGH),
        (1.0, speedup(2.0, 0.1), False, ClaimStatus.INVALID),
        (1.0, None, True, ClaimStatus.UNKNOWN),
        (None, speedup(2.0, 0.1), True, ClaimStatus.UNKNOWN),
    ],
)
def test_a_claim_holds_within_or_below_the_interval(
    claim: float | None, measured: object, valid: bool, said: ClaimStatus
) -> None:
    assert claim_status(claim, measured, valid=valid) is said  # type: ignore[arg-type]


def test_a_table_says_how_each_file_is_called(tmp_path: Path) -> None:
    files = tuple(tmp_path / name for name in ("a/softmax.cu", "b/softmax.cu", "fast.cpp", "relu.py", "tanh.cu"))
    tasks, table = select(["warpsmith-100@small"]), tmp_path / "calls.csv"
    table.write_text(
        "\ufefffile,entry,task,allow\r\n"
        'a/softmax.cu,"softmax_forward(x, 1)",,\r\n'
        "\r\n"
        "b/softmax.cu,softmax,,\r\n"
        'fast.cpp,"apply(x, alpha=0.5)",20_LeakyReLU,"torch, cublas"\r\n'
        "relu.py\r\n",
        encoding="utf-8",
    )

    calls = read_calls(table, files, tasks=tasks)
    found, strangers = matched(files, tasks, calls, entry="launch_it", allow=("cudnn",))

    assert calls[files[0]] == FileCall(2, "softmax_forward(x, 1)")
    assert {(each.path, each.task.name, each.entry, each.allow) for each in found} == {
        (files[0], "softmax@small", "softmax_forward(x, 1)", ("cudnn",)),
        (files[1], "softmax@small", "softmax", ("cudnn",)),
        (files[2], "leaky_relu@small", "apply(x, alpha=0.5)", ("torch", "cublas")),
        (files[3], "relu@small", "launch_it", ("cudnn",)),
        (files[4], "tanh@small", "launch_it", ("cudnn",)),
    }
    assert strangers == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "calls.csv:1: the line of headings lacks file or entry; known columns: file, entry, task, allow."),
        ("file\nrelu.py\n", "calls.csv:1: the line of headings lacks file or entry"),
        ("file,entry,alow\n", "calls.csv:1: 'alow' cannot be a column here; known columns"),
        ("file,entry,entry\n", "calls.csv:1: 'entry' cannot be a column here"),
        ("file,entry\nabsent.cu,f\n", "calls.csv:2: 'absent.cu' is none of the files to judge"),
        ("file,entry\n,f\n", "calls.csv:2: '' is none of the files to judge"),
        ("file,entry\nsoftmax.cu,f\n", r"calls.csv:2: 'softmax.cu' can be \S+a/softmax.cu and \S+b/softmax.cu; write"),
        ("file,entry\nrelu.py,f\n\nrelu.py,g\n", "calls.csv:4: .*relu.py is in line 2 already; keep one"),
        ("file,entry\nrelu.py,f(x, 1)\n", "calls.csv:2: 3 cells for 2 columns; put a cell with commas between double"),
        ('file,entry\nrelu.py,"f(x"\n', r"calls.csv:2: entry 'f\(x' is not a call"),
        ("file,entry\nrelu.py,__import__('os').system('x')\n", "calls.csv:2: entry .* is not a call"),
        ('file,entry\nrelu.py,"f(open(1))"\n', "calls.csv:2: entry .* is not a call"),
        ("file,entry,task\nrelu.py,f,nothing\n", "calls.csv:2: 'nothing' is no task of the suite"),
        ("file,entry,allow\nrelu.py,f,a b\n", "calls.csv:2: allow 'a b' is no library"),
        ('file,entry\nrelu.py,"f\n', r"the calls \S+calls.csv:2 cannot be read \(unexpected end of data\)"),
    ],
)
def test_a_mistake_in_a_table_of_calls_is_one_sentence_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    files = tuple(tmp_path / name for name in ("a/softmax.cu", "b/softmax.cu", "relu.py"))
    table = tmp_path / "calls.csv"
    table.write_text(text)

    with pytest.raises(UsageError, match=said) as found:
        read_calls(table, files, tasks=select(["warpsmith-100@small"]), libraries=parse_libraries)
    assert "\n" not in str(found.value)


def test_a_table_of_calls_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    table = tmp_path / "calls.csv"
    with pytest.raises(UsageError, match=r"calls\.csv cannot be read \(No such file or directory\); name a CSV file"):
        read_calls(table, ())
    table.write_bytes(b"file,entry\n\xff\n")
    with pytest.raises(UsageError, match=r"calls\.csv cannot be read \('utf-8' codec can't decode"):
        read_calls(table, ())
    table.write_text("file,entry,task\nrelu.py,f,relu\n")
    with pytest.raises(UsageError, match=r"'task' cannot be a column here; known columns: file, entry\."):
        read_calls(table, (Path("relu.py"),), columns=())


EXTENSION = """
#include <torch/extension.h>
torch::Tensor times(const torch::Tensor& x, double factor) {
  auto out = torch::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = factor * x.data_ptr<float>()[i];
  return out;
}
"""
FUNCTIONS = """
import torch

def add_to_itself(x):
    return torch.add(x, x)
"""


def test_a_function_is_judged_by_a_table(tmp_path: Path, evaluator: Evaluator) -> None:
    (tmp_path / "twice.py").write_text(TASK)
    (tmp_path / "theirs").mkdir()
    for name, text in (("functions.py", FUNCTIONS), ("twice.cpp", RIGHT)):
        (tmp_path / "theirs" / name).write_text(text)
    tasks, files = select([str(tmp_path / "twice.py")]), kernel_files([str(tmp_path / "theirs")])
    wanted, table = WantedChecks(verify=False, compile_baseline=False), tmp_path / "calls.csv"

    def judge(line: str) -> dict[str, str]:
        table.write_text(f"file,entry,task,allow\n{line}")
        found, _ = matched(files, tasks, read_calls(table, files, tasks=tasks))
        checked = check_claims(evaluator, found, {}, wanted, tmp_path / "store")
        return {Path(each.file).name: each.status for each in checked}

    assert judge("functions.py,add_to_itself,twice,torch") == {"functions.py": "ok", "twice.cpp": "ok"}
    assert judge("functions.py,add_to_itself,twice,") == {"functions.py": "rejected", "twice.cpp": "ok"}


@pytest.mark.slow
def test_files_with_functions_of_their_own_are_judged_by_a_table(tmp_path: Path, evaluator: Evaluator) -> None:
    """A torch extension, a Python function that needs PyTorch, and a native kernel, which has no entry."""
    (tmp_path / "twice.py").write_text(TASK)
    tasks = select([str(tmp_path / "twice.py")])
    (tmp_path / "theirs").mkdir()
    for name, text in (("fast_ext.cpp", EXTENSION), ("functions.py", FUNCTIONS), ("twice.cpp", RIGHT)):
        (tmp_path / "theirs" / name).write_text(text)
    files, table = kernel_files([str(tmp_path / "theirs")]), tmp_path / "calls.csv"
    wanted, usual = WantedChecks(verify=False, compile_baseline=False), evaluator.settings

    def judge(by: Evaluator, *lines: str) -> dict[str, CheckedClaim]:
        table.write_text("\n".join(["file,entry,task,allow", *lines]))
        found, _ = matched(files, tasks, read_calls(table, files, tasks=tasks))
        return {Path(each.file).name: each for each in check_claims(by, found, {}, wanted, tmp_path / "store")}

    extension, function = 'fast_ext.cpp,"times(x, 2)",twice,', "functions.py,add_to_itself,twice,torch"
    first = judge(evaluator, extension, function)
    assert {name: each.status for name, each in first.items()} == dict.fromkeys(first, "ok"), first
    assert [first[name].entry for name in ("fast_ext.cpp", "functions.py", "twice.cpp")] == [
        "times(x, 2)",
        "add_to_itself",
        "",
    ]
    assert evaluator.settings == usual
    # Nothing is found out twice; what has changed in the table is.
    assert judge(_nobody(), extension, function) == first
    changed = judge(evaluator, 'fast_ext.cpp,"times(x, 3)",twice,', "functions.py,add_to_itself,twice,")
    assert {name: each.status for name, each in changed.items()} == {
        "fast_ext.cpp": "wrong",
        "functions.py": "rejected",
        "twice.cpp": "ok",
    }
    # A call that does not fit the task is that file's fault: the others go on.
    unfit = judge(evaluator, 'fast_ext.cpp,"times(y, 2)",twice,', function)
    assert (unfit["fast_ext.cpp"].status, unfit["functions.py"].status) == ("not_judged", "ok")
    assert "'y' is no tensor, scalar or axis of twice" in unfit["fast_ext.cpp"].reason


def test_kernels_are_judged_verified_and_kept(tmp_path: Path, evaluator: Evaluator) -> None:
    """With a real evaluator: what a bench does with its winners, too."""
    (tmp_path / "twice.py").write_text(TASK)
    (task,) = select([str(tmp_path / "twice.py")])
    for folder, text in (("ours", RIGHT), ("theirs", WRONG)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "twice.cpp").write_text(text)
    files = kernel_files([str(tmp_path / "ours"), str(tmp_path / "theirs")])
    found, _ = matched(files, [task])
    # However busy the machine is: what it measures is not what is tested here.
    wanted, usual = WantedChecks(verify=True, compile_baseline=False, tolerance=1e9), evaluator.settings
    checks: list[str] = []

    right, wrong = check_claims(
        evaluator,
        found,
        {"twice": 1e6},
        wanted,
        tmp_path / "store",
        on_event=lambda _, event: checks.append(event.name) if event is not None else None,
    )

    assert (right.status, right.verified, right.why_not) == ("ok", True, "")
    assert (right.holding, wrong.holding) == (ClaimStatus.TOO_HIGH, ClaimStatus.INVALID)
    assert right.eager is not None
    assert (wrong.status, wrong.eager, wrong.verified) == ("wrong", None, None)
    assert {"fresh_seeds", "address_sanitizer", "remeasurement"} <= set(checks)
    assert evaluator.settings == usual
    (kept,) = [
        known
        for path in (tmp_path / "store" / "twice").iterdir()
        if (known := read_checks(path)).certificate and known.certificate.verified
    ]
    assert kept.certificate is not None
    assert all(check.outcome is not CheckStatus.FAILED for check in kept.certificate.checks)
    # Nothing is found out twice: the evaluator is not even asked.
    again = check_claims(_nobody(), found, {}, wanted, tmp_path / "store")
    assert next(replace(each, claim=1e6, holding=ClaimStatus.TOO_HIGH) for each in again) == right


def _nobody() -> Evaluator:
    """One that cannot judge."""

    class Nobody:
        settings = Settings()

    return Nobody()  # type: ignore[return-value]
