"""Tasks in parts: what their kernels compute, on the emulated device."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from tests.collection.test_long_scan import translated as translated_again
from tests.collection.test_rows_form import LONGEST, placed, translated
from tests.collection.test_top_k_form import DEVICE as TOP_K_DEVICE
from tests.emulated_device import compile_and_load
from tests.kernel_templates.bundle import _emulated
from tests.kernel_templates.test_in_parts import HERE, W, X, native
from warpsmith.backends.library import LIBRARY
from warpsmith.kernel_templates.in_parts import in_parts
from warpsmith.model.brief import Problem
from warpsmith.model.contract import ArgumentKind
from warpsmith.tasks.program import DTYPES, Program


@dataclass(frozen=True)
class Chained:
    """A chain, and sizes to call its kernel with: those of the task first."""

    tensors: str
    result: str
    sizes: tuple[dict[str, int], ...]


CHAINS = {
    "product, softmax": Chained(
        f"{X}; {W}", "torch.softmax(F.linear(x, w) * 0.25, 1)", ({"rows": 12, "cols": 20, "width": 24},)
    ),
    "a value that two later parts read": Chained(
        f'{X}; {W}; v=normal("cols, width"); bias=normal("width")',
        "y = F.linear(x, w, bias); z = F.layer_norm(y, (y.shape[1],)); F.gelu(F.linear(z, v)) + torch.relu(y).mean()",
        ({"rows": 9, "cols": 13, "width": 13},),
    ),
    "a residual": Chained(
        f'{X}; {W}; v=normal("cols, width")',
        "x + F.linear(torch.softmax(F.linear(x, w), 1), v)",
        ({"rows": 7, "cols": 20, "width": 33},),
    ),
    "two outputs": Chained(
        f'{X}; {W}; bias=normal("width")',
        "y = F.linear(x, w, bias); (y, torch.softmax(y, 1))",
        ({"rows": 12, "cols": 20, "width": 24},),
    ),
    "symbolic axes": Chained(
        'x=normal("b, l, d"); gain=normal("d"); w=normal("n, d"); bias=normal("n")',
        "F.gelu(F.linear(F.layer_norm(x, (x.shape[-1],), gain), w, bias)).softmax(-1)",
        ({"b": 2, "l": 5, "d": 12, "n": 20}, {"b": 3, "l": 1, "d": 33, "n": 7}, {"b": 1, "l": 64, "d": 4, "n": 66}),
    ),
    "group norm of a product": Chained(
        'x=normal("rows, 24"); w=normal("32, 24"); gain=normal("32"); shift=normal("32")',
        "F.hardtanh(F.group_norm(F.linear(x, w), 4, gain, shift), -0.5, 2.0)",
        ({"rows": 6}, {"rows": 11}),
    ),
    "router": Chained(
        f"{X}; {W}",
        "(lambda v, i: (v / v.sum(-1, keepdim=True), i))(*torch.topk(torch.softmax(F.linear(x, w), -1), 3, dim=-1))",
        (
            {"rows": 9, "cols": 20, "width": 24},
            {"rows": 5, "cols": 33, "width": 70},
            {"rows": 1, "cols": 4, "width": 3},
        ),
    ),
    "running statistics": Chained(
        'x=normal("rows, 24"); w=normal("32, 24"); mean=normal("32"); gain=normal("32"); bias=normal("32")',
        "F.relu(F.batch_norm(F.linear(x, w), mean, gain * gain + 0.5, gain, bias)).softmax(1)",
        ({"rows": 6}, {"rows": 3}),
    ),
}
HEADERS = ("packs", "divisor", "rows", "group_norm", "elementwise")
WARP = """
template <typename T> T __shfl_sync(unsigned, T value, int lane) {
  const int me = emulated::current;
  std::memcpy(emulated::cells[me], &value, sizeof value);
  emulated::wait_for(emulated::WARP);
  std::memcpy(&value, emulated::cells[me / 32 * 32 + lane], sizeof value);
  emulated::wait_for(emulated::WARP);
  return value;
}
inline unsigned __ballot_sync(unsigned all, bool p) {
  unsigned v = p ? 1u << (emulated::current % 32) : 0;
  for (int s = 16; s; s /= 2) v |= __shfl_xor_sync(all, v, s);
  return v;
}
inline bool __any_sync(unsigned all, bool p) { return __ballot_sync(all, p) != 0; }
"""
ANY_ROWS = """
namespace warpsmith {
template <typename P> int reduce_any_rows(const P& p, int64_t rows, int64_t cols, void*, void* stream) {
  return reduce_rows(p, rows, cols, stream);
}
}
"""


@dataclass(frozen=True)
class Loaded:
    """The kernels of all chains."""

    library: ctypes.CDLL
    programs: Mapping[str, tuple[Program, Problem]]

    def outputs(self, name: str, tensors: Mapping[str, Tensor], sizes: Mapping[str, int]) -> list[Tensor]:
        """What the kernel of a chain writes; the workspace and what lies around the tensors are not numbers."""
        _, problem = self.programs[name]
        number = list(CHAINS).index(name)
        given = {each: placed(values) for each, values in tensors.items()}
        outputs = {
            spec.name: placed(
                torch.full(spec.shape(sizes), torch.nan if "float" in spec.dtype else 77, dtype=DTYPES[spec.dtype])
            )
            for spec in problem.task.outputs
        }
        extents = [ctypes.c_int64(sizes[each.source]) for each in problem.contract.size_arguments]
        needed = getattr(self.library, f"workspace_bytes_{number}")
        needed.restype = ctypes.c_int64
        workspace = placed(torch.full((int(needed(*extents)) // 4,), torch.nan))
        passed: list[object] = []
        for argument in problem.contract.arguments:
            if argument.kind in (ArgumentKind.INPUT, ArgumentKind.OUTPUT):
                passed.append(ctypes.c_void_p({**given, **outputs}[argument.source].data_ptr()))
            elif argument.kind is ArgumentKind.AXIS:
                passed.append(ctypes.c_int64(sizes[argument.source]))
            else:
                at = workspace.data_ptr() if argument.kind is ArgumentKind.WORKSPACE else None
                passed.append(ctypes.c_void_p(at))
        assert getattr(self.library, f"launch_{number}")(*passed) == 0
        for each, values in tensors.items():
            assert torch.equal(given[each], values.flatten())
        return [outputs[spec.name].reshape(spec.shape(sizes)) for spec in problem.task.outputs]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder = tmp_path_factory.mktemp("parts")
    device = (HERE / "parts_device.h").read_text()
    texts = {name: LIBRARY.joinpath("warpsmith", f"{name}.cuh").read_text() for name in (*HEADERS, "short_rows")}
    texts["packs"] = re.sub(
        r"#(if|elif) TUNE_LOAD.*?#endif", "  return *(const float4*)(from);", texts["packs"], flags=re.DOTALL
    )
    headers = [translated(texts[name]) for name in HEADERS]
    parts = [
        f'#include "{HERE / "emulator.h"}"\n#include <type_traits>\n#define __host__\n#define __grid_constant__\n'
        "#define __restrict__\n",
        device,
        *headers[:3],
        LONGEST,
        ANY_ROWS,
        *headers[3:],
        translated(texts["short_rows"]),
        WARP,
        TOP_K_DEVICE,
        translated_again(LIBRARY.joinpath("warpsmith", "row_top_k.cuh").read_text()),
    ]
    programs = {}
    for number, (name, case) in enumerate(CHAINS.items()):
        place = folder / str(number)
        place.mkdir()
        programs[name] = native(place, case.tensors, str(list(case.sizes)), case.result)
        kernel = in_parts(programs[name][1])
        assert kernel is not None, name
        text = translated(_emulated(kernel.source))
        text = text.replace('extern "C"', 'extern "C" __attribute__((visibility("default")))')
        text = re.sub(r'(extern "C" \S+ \S+ )(launch|workspace_bytes)\(', rf"\1\2_{number}(", text)
        parts.append(f"namespace case_{number} {{\n{text}\n}}\n")
        parts += [f"#undef {macro}\n" for macro in re.findall(r"^#define (\w+)", text, re.MULTILINE)]
    return Loaded(compile_and_load("".join(parts), folder, ("-O0", "-fvisibility=hidden")), programs)


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_gives_what_pytorch_gives(name: str, loaded: Loaded) -> None:
    program, problem = loaded.programs[name]
    for sizes in CHAINS[name].sizes:
        workload = next(each for each in problem.task.workloads if each.sizes == sizes)
        tensors = program.inputs(workload, seed=3, device=torch.device("cpu"))
        wanted = program.run(program.widen(tensors))

        found = loaded.outputs(name, tensors, sizes)

        assert len(found) == len(wanted)
        for ours, theirs in zip(found, wanted, strict=True):
            assert torch.allclose(ours.double(), theirs.double(), rtol=2e-5, atol=2e-5), sizes
