"""The standalone process of a Python candidate: imports the file inside the sandbox and calls it once per input set.

For compute-sanitizer, with PYTORCH_NO_CUDA_MEMORY_CACHING=1, so that every tensor is an allocation of its own. Torch's
kernels are checked too: their faults are charged to the candidate that called them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import torch.utils.cpp_extension  # before the sandbox closes

from warpsmith.evaluator.candidate import extensions
from warpsmith.evaluator.candidate.python_module import (
    NamedTensor,
    OutputTarget,
    PythonCallable,
    copy_results,
    describe_error,
    import_candidate,
)
from warpsmith.evaluator.candidate.triton_support import move_cache
from warpsmith.model.build import EXTENSIONS, MAIN, SOURCES, TRITON
from warpsmith.model.contract import PythonCall
from warpsmith.verification.standalone import StandaloneInputs, StandaloneProcess


class StandalonePython(StandaloneProcess):
    """Calls a Python candidate."""

    def __init__(self, start: StandaloneInputs) -> None:
        super().__init__(start)
        plan = start.plan
        torch.set_grad_enabled(False)
        self._device = torch.device("cuda", plan["device"]) if plan["kind"] == "cuda" else torch.device("cpu")
        if plan["kind"] == "cuda":
            torch.cuda.set_device(self._device)
        self._tensors: dict[str, dict[str, torch.Tensor]] = {}

    def prepare(self) -> None:
        specs = {each["name"]: each for each in self.plan["tensors"]}
        for case in self.plan["cases"]:
            made = self._tensors[case["name"]] = {}
            for name in case["inputs"]:
                data = bytearray(self.input(case["name"], name))
                made[name] = self._filled(data, specs[name]["dtype"], case["shapes"][name])
            for name in case["outputs"]:
                dtype = getattr(torch, specs[name]["dtype"])
                made[name] = torch.empty(tuple(case["shapes"][name]), dtype=dtype, device=self._device)
        torch.zeros(1, device=self._device).add_(1)  # loads what torch needs, while files can be read

    def _filled(self, data: bytearray, dtype: str, shape: list[int]) -> torch.Tensor:
        raw = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
        return raw.view(getattr(torch, dtype)).view(tuple(shape)).clone().to(self._device)

    def call_all(self) -> str:
        folder, fields = Path(self.plan["library"]), self.plan["call"]
        call = PythonCall.from_json(fields)
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = call.tf32
        extensions.load_from(folder / EXTENSIONS)
        if (folder / TRITON).is_dir():
            cache = Path(os.environ["TMPDIR"]) / TRITON
            move_cache(folder / TRITON, cache)
            os.environ["TRITON_CACHE_DIR"] = str(cache)
        sources = folder / SOURCES
        try:
            module = import_candidate(sources / (folder / MAIN).read_text(encoding="utf-8").strip())
            callee = PythonCallable(module, call, self._device)
            for case in self.plan["cases"]:
                self._call(callee, call, case)
        except Exception as error:  # noqa: BLE001  the candidate's code: whatever it raises is its failure
            return describe_error(error, "raised", sources).text
        return ""

    def _call(self, callee: PythonCallable, call: PythonCall, case: dict[str, Any]) -> None:
        tensors = self._tensors[case["name"]]
        specs = self.plan["tensors"]
        given = [NamedTensor(each["name"], each["role"], each["origin"], tensors[each["name"]]) for each in specs]
        bound = callee.bind(given, case["numbers"])
        bound.renew()
        returned = bound.call()
        if call.returned:
            copy_results(returned, [OutputTarget(name, tensors[name]) for name in call.returned])
        if self.plan["kind"] == "cuda":
            torch.cuda.synchronize()

    def result(self, case: str, output: str) -> bytes:
        tensor = self._tensors[case][output].cpu().contiguous().reshape(-1).view(torch.uint8)
        return tensor.numpy().tobytes()
