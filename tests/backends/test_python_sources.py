"""Python candidates as files: which backend takes them, what is wrong with them, how they will be called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from warpsmith.backends.source import backend_named, devices_of, read_candidate
from warpsmith.backends.torch_module import LOADER, TorchModuleBackend
from warpsmith.model.build import MAIN, SOURCES, Artifact, BuildFailure, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import CandidateError, UsageError
from warpsmith.model.settings import Limits, Paths
from warpsmith.model.task import Precision, ScalarKind, ScalarSpec, Task, TensorRole, TensorSpec, Workload

INPUT, STATE, OUTPUT = TensorRole.INPUT, TensorRole.STATE, TensorRole.OUTPUT
MODEL = "class ModelNew(torch.nn.Module):\n    pass\n"
KERNEL = "import triton\n\ndef launch(x, out, n):\n    pass\n"


def task_of(**changes: object) -> Task:
    fields: dict[str, object] = {
        "name": "scale",
        "source": "def scale(x): ...",
        "kind": "native",
        "tensors": (
            TensorSpec("x", "float32", ("n",), INPUT),
            TensorSpec("weight", "float32", (4,), STATE, "layer.weight"),
            TensorSpec("out", "float32", ("n",), OUTPUT),
        ),
        "scalars": (ScalarSpec("eps", ScalarKind.FLOAT, 1e-5),),
        "workloads": (Workload("small", (("n", 8),)), Workload("large", (("n", 80),))),
        "precision": Precision.FP32,
        "digest": "digest",
    }
    return Task(**{**fields, **changes})  # type: ignore[arg-type]


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# --- which backend ---


@pytest.mark.parametrize(
    ("name", "text", "entry", "backend", "devices"),
    [
        ("a.py", MODEL, "", "torch_module", ("cuda", "cpu")),
        ("a.py", "ModelNew = make()\n", "", "torch_module", ("cuda", "cpu")),
        ("a.py", KERNEL, "", "triton", ("cuda",)),
        ("a.py", MODEL + KERNEL, "", "torch_module", ("cuda",)),
        ("a.py", MODEL + "load_inline(cuda_sources=s)", "", "torch_module", ("cuda",)),
        ("a.py", "def f(x): ...", "f(x)", "torch_module", ("cuda", "cpu")),
        ("a.cpp", "int f();", "", "cpu", ("cpu",)),
        ("a.cpp", "int f();", "f(x)", "torch_module", ("cpu", "cuda")),
        ("a.cu", "int f();", "", "cuda", ("cuda",)),
        ("a.cu", "int f();", "f(x)", "torch_module", ("cuda",)),
    ],
)
def test_ending_and_content_choose_the_backend(
    tmp_path: Path, name: str, text: str, entry: str, backend: str, devices: tuple[str, ...]
) -> None:
    candidate = read_candidate(written(tmp_path, name, text), entry=entry)

    assert candidate.backend == backend
    assert devices_of(candidate) == devices


def test_a_python_file_that_holds_nothing_to_call_is_refused_with_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match=r"defines the class ModelNew, or `launch` with Triton.*--entry"):
        read_candidate(written(tmp_path, "a.py", "def launch(x, out): ...\n"))


def test_the_entry_is_part_of_what_a_candidate_is(tmp_path: Path) -> None:
    path = written(tmp_path, "a.py", "def f(x): ...\n")

    assert read_candidate(path, entry="f(x)").id != read_candidate(path, entry="f(x, 1)").id


def test_native_kernels_take_no_entry() -> None:
    with pytest.raises(UsageError, match="defines `launch`"):
        backend_named("cpu").contract(task_of(), "f(x)")


# --- how it is called ---


def called(entry: str, **changes: object) -> tuple[object, object, tuple[str, ...]]:
    call = TorchModuleBackend().contract(task_of(**changes), entry).call
    assert call is not None
    return json.loads(call.arguments), json.loads(call.keywords), call.returned


def test_an_entry_alone_gets_inputs_state_and_scalars_in_order() -> None:
    assert called("scale_forward") == ([{"$": "x"}, {"$": "weight"}, {"$": "eps"}], {}, ("out",))


def test_an_entry_may_name_everything_of_the_task_and_hold_literals() -> None:
    arguments, keywords, returned = called("f(x, n, eps, 1, -2.5, true, none, [1, 2], 'mean', (n, 3), dim=-1)")

    assert arguments == [
        *({"$": "x"}, {"$": "n"}, {"$": "eps"}, 1, -2.5, True, None, [1, 2], "mean"),
        {"()": [{"$": "n"}, 3]},
    ]
    assert keywords == {"dim": -1}
    assert returned == ("out",)


def test_an_output_among_the_arguments_is_written_and_not_returned() -> None:
    assert called("f(x, out)")[2] == ()


def test_an_unknown_name_in_an_entry_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'y' is no tensor.* of scale; known: x, weight, out, eps, n\.$"):
        called("f(y)")


@pytest.mark.parametrize(
    "entry", ["f(x", "f(x))", "1f(x)", "f(x + 1)", "f(*x)", "f(x).g", "f g", "(x)", "f(lambda: 0)"]
)
def test_what_is_no_call_is_refused(entry: str) -> None:
    with pytest.raises(UsageError, match="is not a call"):
        called(entry)


def test_model_new_is_built_and_called_as_the_task_says() -> None:
    task = task_of(
        kind="kernelbench",
        init='[[64, {"()": [3, 3]}], {"bias": false}]',
        call='[[{"$": "x"}, null], {"eps": {"$": "eps"}}]',
    )
    contract = TorchModuleBackend().contract(task)

    assert contract.call is not None
    assert (contract.call.form, contract.call.name, contract.call.init) == ("module", "ModelNew", task.init)
    assert "def __init__(self, arg0, arg1, bias):  # ModelNew(64, (3, 3), bias=False)" in contract.text
    assert "def forward(self, x, arg1, eps):  # model(x, None, eps=eps)" in contract.text
    assert "`layer.weight`" in contract.text


def test_a_constructor_argument_that_cannot_travel_is_said_so() -> None:
    with pytest.raises(UsageError, match=r"get_init_inputs\(\) gives a Tensor, which cannot be handed"):
        TorchModuleBackend().contract(task_of(init='[[{"?": "a Tensor"}], {}]'))


def test_triton_launch_gets_tensors_then_numbers() -> None:
    contract = backend_named("triton").contract(task_of())

    assert contract.call is not None
    assert contract.call.returned == ()
    assert [each["$"] for each in json.loads(contract.call.arguments)] == ["x", "weight", "out", "eps", "n"]
    assert "def launch(x, weight, out, eps, n):" in contract.text


# --- what is wrong with a file, before anything of it runs ---


def built(tmp_path: Path, candidate: Candidate) -> Artifact | BuildFailure:
    backend = backend_named(candidate.backend).configured(Paths(tmp_path / "cache"), Limits())
    return backend.build(candidate, backend.contract(task_of(), candidate.entry), Target(DeviceKind.CPU))


def model(text: str, entry: str = "") -> Candidate:
    return Candidate((SourceFile("kernel.py", text),), "torch_module", entry=entry)


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (model(MODEL + "\n\nx = = 1\n"), "kernel.py:5: invalid syntax\nx = = 1"),
        (model("def other(): ...\n"), "kernel.py does not define ModelNew: define\nclass ModelNew(torch.nn.Module)"),
        (model("def other(): ...\n", "f(x)"), "kernel.py does not define f: define\ndef f(...)"),
        (model("x = '''" + "\n"), "kernel.py:1: unterminated triple-quoted string literal"),
    ],
)
def test_a_fault_is_found_without_running_the_file(tmp_path: Path, candidate: Candidate, reason: str) -> None:
    failure = built(tmp_path, candidate)

    assert isinstance(failure, BuildFailure)
    assert failure.reason.startswith(reason)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (MODEL, "module"),
        ("try:\n    from elsewhere import ModelNew\nexcept ImportError:\n    ModelNew = None\n", "module"),
        ("from torch.utils.cpp_extension import load_inline\n" + MODEL, "sources"),
        ("    import triton\n".strip() + "\n" + MODEL, "sources"),
    ],
)
def test_sources_are_kept_as_they_are(tmp_path: Path, text: str, kind: str) -> None:
    first, again = built(tmp_path, model(text)), built(tmp_path, model(text))

    assert isinstance(first, Artifact)
    assert isinstance(again, Artifact)
    assert (first.kind, first.cached, again.cached) == (kind, False, True)
    assert first.library == again.library
    assert (first.library / MAIN).read_text() == "kernel.py"
    assert (first.library / SOURCES / "kernel.py").read_text() == text


def test_where_builds_are_not_used_again_each_has_a_folder_of_its_own(tmp_path: Path) -> None:
    backend = backend_named("torch_module").configured(Paths(tmp_path / "cache", reuse_builds=False), Limits())
    made = [backend.build(model(MODEL), backend.contract(task_of()), Target(DeviceKind.CPU)) for _ in range(2)]
    assert all(isinstance(each, Artifact) and not each.cached for each in made)
    assert len({each.library for each in made if isinstance(each, Artifact)}) == 2


def extension(text: str, entry: str) -> Candidate:
    return Candidate((SourceFile("kernel.cpp", text),), "torch_module", entry=entry)


def test_an_extension_without_bindings_is_given_some(tmp_path: Path) -> None:
    artifact = built(tmp_path, extension("torch::Tensor f(torch::Tensor x);\n", "ops::f(x)"))

    assert isinstance(artifact, Artifact)
    assert artifact.compiler.startswith("torch extension, ")
    text = (artifact.library / SOURCES / "kernel.cpp").read_text()
    assert text.startswith("torch::Tensor f(torch::Tensor x);\n")
    assert '.def("f", &ops::f);' in text
    assert (artifact.library / MAIN).read_text() == LOADER


def test_an_extension_with_bindings_is_left_alone(tmp_path: Path) -> None:
    text = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }\n'
    artifact = built(tmp_path, extension(text, "f(x)"))

    assert isinstance(artifact, Artifact)
    assert (artifact.library / SOURCES / "kernel.cpp").read_text() == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('#include "/etc/passwd"\nint f();', "leaves the include path"),
        ("int g();", "kernel.cpp does not mention f: name a function that it defines."),
    ],
)
def test_an_extension_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    failure = built(tmp_path, extension(text, "f(x)"))

    assert isinstance(failure, BuildFailure)
    assert reason in failure.reason
