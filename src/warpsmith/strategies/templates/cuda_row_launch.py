"""CUDA: how kernels with a reduction along the last axes are called: which instance for which length of a row."""

from __future__ import annotations

from warpsmith.strategies.templates.code import Context, lengths, nest
from warpsmith.strategies.templates.cuda_packs import arguments
from warpsmith.strategies.templates.graph import Expr
from warpsmith.strategies.templates.stages import Stage
from warpsmith.strategies.templates.switches import Switches

MEMORY, REGISTERS, SHARED = "memory", "registers", "shared"
MOST_KEPT = 32768  # elements of a row in the registers of a block
MOST_SHARED_BYTES = 208 << 10  # what one block may have on current devices, less what reductions take


class RowLaunch:
    """The calls of a kernel over rows; what the kernel computes is in `cuda_rows`."""

    context: Context
    stage: Stage
    on: Switches
    name: str
    lanes: str  # threads of a row: "1", "32" or "THREADS"
    modes: list[str]  # where a row may wait between passes
    row_loads: list[Expr]  # what of a row is worth keeping
    kept_length = "along_"  # how many elements of a row a block keeps in shared memory

    def _outer(self) -> str:
        return " * ".join(f"({self.context.extent(g)})" for g in self.stage.outer) or "1"

    def _blocks(self) -> str:
        per_block = {"32": "(THREADS / 32)", "THREADS": "1", "1": "THREADS"}[self.lanes]
        return f"(outer_ + {per_block} - 1) / {per_block}"

    def _launch(self) -> list[str]:
        lines = [
            f"const int64_t outer_ = {self._outer()};",
            f"const int64_t along_ = {self.context.extent(self.stage.along)};",
            f"const int64_t blocks_ = {self._blocks()};",
        ]
        given = arguments(self.context)
        width = self.on.macro("VECTOR", "vector-loads", "width") if "vector-loads" in self.on else ""
        widths = [(width, f"along_ % {width} == 0"), ("1", "")] if width else [("1", "")]
        calls: list[tuple[str, list[str]]] = []
        if REGISTERS in self.modes:
            for length in lengths(self.context, self.stage.along)[:4]:
                for w, test in widths:
                    fits = f"keep_for({length}, {w}) > 0 && along_ <= {length}" + (f" && {test}" if test else "")
                    kernel = f"{self.name}<{w}, keep_for({length}, {w})>"
                    calls.append((fits, [f"{kernel}<<<blocks_, THREADS, 0, stream_>>>({given});"]))
        if SHARED in self.modes:
            rows = "(THREADS / 32)" if self.lanes == "32" else "1"
            lines.append(f"const int64_t shared_ = ({self._shared_bytes()}) * {rows};")
            for w, test in widths:
                fits = f"shared_ <= {MOST_SHARED_BYTES}" + (f" && {test}" if test else "")
                calls.append((fits, self._shared_call(w)))
        for w, test in widths:
            chosen = f"<{w}, 0>" if len(self.modes) > 1 else f"<{w}>"
            calls.append((test, [f"{self.name}{chosen}<<<blocks_, THREADS, 0, stream_>>>({given});"]))
        for number, (test, call) in enumerate(calls):
            word = "if" if number == 0 else "} else if"
            lines += [f"{word} ({test}) {{" if test else "} else {" if number else "{", *nest(call)]
        return [*self._keep_for(), *lines, "}"]

    def _keep_for(self) -> list[str]:
        """How many packs a thread holds of a row of some length; 0 where that is too many for its registers."""
        if REGISTERS not in self.modes:
            return []
        most = f"{64 // max(1, len(self.row_loads))}"
        return [
            "struct Keep {",
            "  static constexpr int count(int64_t length, int width) {",
            f"    const int64_t packs = (length / width + {self.lanes} - 1) / {self.lanes};",
            f"    return packs * width <= {most} && packs * width * THREADS <= {MOST_KEPT} ? int(packs) : 0;",
            "  }",
            "};",
            "#define keep_for(length, width) Keep::count(length, width)",
        ]

    def _shared_call(self, width: str) -> list[str]:
        """The launch with as much shared memory as `shared_` says."""
        kernel = f"{self.name}<{width}, -1>"
        allow = "cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_)"
        return [
            f"const cudaError_t allowed_ = cudaFuncSetAttribute({kernel}, {allow});",
            "if (allowed_ != cudaSuccess) return static_cast<int>(allowed_);",
            f"{kernel}<<<blocks_, THREADS, shared_, stream_>>>({arguments(self.context)});",
        ]

    def _shared_bytes(self) -> str:
        """What the part of a row that a block keeps takes."""
        return " + ".join(f"({self.kept_length} * {self._bytes(e)} + 15) / 16 * 16" for e in self.row_loads)

    def _bytes(self, load: Expr) -> str:
        return f"int64_t(sizeof({self.context.element(load.name)}))"
