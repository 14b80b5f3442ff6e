"""The form of group normalisation: which tasks it claims, and what it writes. Its values: `test_in_parts_values.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collection.test_forms import described
from warpsmith.backends.source import backend_named
from warpsmith.kernels.form_group_norm import group_norm
from warpsmith.kernels.form_task import FormTask, NotThisForm
from warpsmith.kernels.forms import form_kernel
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile

AFFINE = 'gain=normal("24"); shift=normal("24")'
LINE, PLANE, SPACE = 'x=normal("b, 24")', 'x=normal("b, 24, h, w")', 'x=normal("b, 24, d, h, w")'
SIZES = {LINE: '{"b": 6}', PLANE: '{"b": 6, "h": 5, "w": 7}', SPACE: '{"b": 2, "d": 3, "h": 5, "w": 7}'}


@pytest.mark.parametrize(
    ("tensors", "result", "call"),
    [
        (LINE, "F.group_norm(x, 4, gain, shift)", "1e-05, 4, 24, 1), b * 4, 24 / 4 * (1), "),
        (PLANE, "F.mish(F.group_norm(x, 8, gain, shift, 1e-3))", "0.001, 8, 24, h * w), b * 8, 24 / 8 * (h * w), "),
        (SPACE, "F.group_norm(x, 3, gain, shift)", "1e-05, 3, 24, d * h * w), b * 3, 24 / 3 * (d * h * w), "),
    ],
)
def test_tensors_of_any_number_of_axes_are_claimed(tensors: str, result: str, call: str, tmp_path: Path) -> None:
    found = form_kernel(*described(tmp_path, f"{tensors}; {AFFINE}", SIZES[tensors], result))

    assert found is not None
    assert found.form == "group normalisation"
    assert f"(x, gain, shift, out, {call}" in found.source
    assert ("struct After" in found.source) == ("mish" in result)


def test_without_weights_there_are_none(tmp_path: Path) -> None:
    found = form_kernel(*described(tmp_path, SPACE, SIZES[SPACE], "F.group_norm(x, 3)"))

    assert found is not None
    assert "group_norm_policy<warpsmith::Same, false>(x, nullptr, nullptr, out" in found.source


@pytest.mark.parametrize(
    "result",
    [
        "F.group_norm(x, 4, gain)",
        "F.group_norm(x, 4, gain, shift) + x",  # more than a function of an element
        "F.group_norm(x, 4, gain, shift) * gain[:, None, None]",
        "F.group_norm(x.exp(), 4, gain, shift)",
        "F.group_norm(x, 4, gain, shift).sum(1)",
        "F.layer_norm(x, (x.shape[-1],))",
    ],
)
def test_what_is_almost_of_the_form_is_not_claimed(result: str, tmp_path: Path) -> None:
    task = FormTask(*described(tmp_path, f"{PLANE}; {AFFINE}", SIZES[PLANE], result))
    with pytest.raises(NotThisForm):
        group_norm(task)


@pytest.mark.nvcc
@pytest.mark.slow  # half a minute
def test_the_source_compiles(tmp_path: Path) -> None:
    task, contract, recorded = described(tmp_path, SPACE, SIZES[SPACE], "F.elu(F.group_norm(x, 3))")
    found = form_kernel(task, contract, recorded)
    assert found is not None
    candidate = Candidate((SourceFile("kernel.cu", found.source),), "cuda")

    made = backend_named("cuda").build(candidate, contract, Target(DeviceKind.CUDA, "sm_90a"))

    assert isinstance(made, Artifact), made.reason
