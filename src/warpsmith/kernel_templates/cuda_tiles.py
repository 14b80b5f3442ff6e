"""CUDA: copies tiles of one operand of a matrix product from global to shared memory.

A thread computes the address of its packs once: they are a fixed distance apart, and its pointer advances from tile to
tile. The first tile has the remainder of the depth, so that all other tiles are whole along the depth and need no check
there; sums still run from the first element to the last.
"""

from __future__ import annotations

from warpsmith.kernel_templates.cpu_product import ProductOperands
from warpsmith.kernel_templates.emitter import nest


class Tile:
    """Writes the code that copies tiles of an operand; names of the left one end in `_a_`, of the right one `_b_`."""

    def __init__(self, operands: ProductOperands, side: str, held: str) -> None:
        product = operands.product
        left = side == "left"
        self.load = product.left if left else product.right
        self.across = product.m if left else product.n
        self.operands = operands
        self.shared = f"{side}_"
        self.width = "TILE_M" if left else "TILE_N"
        self.mark = "a_" if left else "b_"
        self.held = f"{held}_{self.mark}"  # the registers that packs pass through
        self.origin, self.room = ("row0_", "rows_") if left else ("column0_", "columns_")
        self.element = operands.context.element(self.load.name)
        self.by_depth = operands.stride(side, product.k) == "1"  # neighbours along the depth are neighbours in memory

    def places(self) -> list[str]:
        """Lines that compute a thread's first pack, the distance to its next packs, and the pointer to the first."""
        mark, context, operands = self.mark, self.operands.context, self.operands
        fast, slow = (f"k_{mark}", f"x_{mark}") if self.by_depth else (f"x_{mark}", f"k_{mark}")
        run = "DEPTH" if self.by_depth else self.width
        place = context.offset(self.load.axes, [
            (operands.batch, "batch_at_"),
            (self.across, f"(int64_t({self.origin}) + x_{mark})"),
            ((operands.product.k,), f"(first_ + k_{mark})"),
        ])  # fmt: skip
        return [
            f"constexpr int PACKS_{mark} = DEPTH * {self.width} / W, SKIP_{mark} = TILE_THREADS / ({run} / W);",
            f"constexpr int EACH_{mark} = (PACKS_{mark} + TILE_THREADS - 1) / TILE_THREADS;",
            f"const int {fast} = threadIdx.x % ({run} / W) * W, {slow} = threadIdx.x / ({run} / W);",
            f"const {self.element}* from_{mark} = {context.names.get(self.load.name, self.load.name)} + {place};",
            f"const int64_t step_{mark} = SKIP_{mark} * ({self._stride(across=self.by_depth)});",
        ]

    def declared(self) -> str:
        """The declaration of the registers that `fetched` fills."""
        return f"Pack<{self.element}, W> {self.held}[EACH_{self.mark}];"

    def moved(self, count: str) -> str:
        """The line that advances the pointer by `count` along the depth."""
        stride = self._stride(across=False)
        return f"from_{self.mark} += {count if stride == '1' else f'{count} * ({stride})'};"

    def fetched(self, *, first: bool, when: str = "") -> list[str]:
        """Load packs from global memory into registers, with zeros beyond the end of the depth.

        Packs beyond the rows or columns, or for which `when` is false, are loaded from a valid address and never used:
        conditional loads would be moved behind the products by the compiler, which would expose their latency.
        """
        base = self.operands.context.names.get(self.load.name, self.load.name)
        if first:
            return self._each(first, [
                f"if (inside_) {self.held}[i_] = load_pack<W>(at_);",
                f"else {self.held}[i_] = Pack<{self.element}, W>{{}};",
            ])  # fmt: skip
        test = f"{when} && inside_" if when else "inside_"
        return self._each(first, [f"{self.held}[i_] = load_pack<W>({test} ? at_ : {base});"])

    def placed(self, buffer: str) -> list[str]:
        """Store packs from registers to shared memory, as one word where tile and operand have the same order."""
        kind, mark = self.operands.kind, self.mark
        value = f"{self.held}[i_].at[j_]"
        value = value if self.element == kind else f"static_cast<{kind}>({value})"
        if self.by_depth:
            body = [
                "#pragma unroll",
                "for (int j_ = 0; j_ < W; ++j_)",
                f"  {self.shared}[{buffer}][k_{mark} + j_][x_{mark} + i_ * SKIP_{mark}] = {value};",
            ]
        else:
            to = f"&{self.shared}[{buffer}][k_{mark} + i_ * SKIP_{mark}][x_{mark}]"
            body = [
                f"Pack<{kind}, W> pack_;",
                "#pragma unroll",
                f"for (int j_ = 0; j_ < W; ++j_) pack_.at[j_] = {value};",
                f"*reinterpret_cast<Pack<{kind}, W>*>({to}) = pack_;",
            ]
        return [*self._loop(), *nest([f"if ({self._mine()}) {{", *nest(body), "}"]), "}"]

    def copied(self, buffer: str, *, first: bool) -> list[str]:
        """Copy asynchronously from global to shared memory; single elements where tile and operand differ in order."""
        kind, mark = self.operands.kind, self.mark
        size = f"sizeof({kind})"
        source = "inside_ ? at_{} : " + self.operands.context.names.get(self.load.name, self.load.name)

        def one(place: str) -> list[str]:
            to = f"&{self.shared}[{buffer}]{place}"
            return [
                "#pragma unroll",
                "for (int j_ = 0; j_ < W; ++j_)",
                f"  __pipeline_memcpy_async({to}, {source.format(' + j_')}, {size}, inside_ ? 0 : {size});",
            ]

        if self.by_depth:
            return self._each(first, one(f"[k_{mark} + j_][x_{mark} + i_ * SKIP_{mark}]"))
        place = f"[k_{mark} + i_ * SKIP_{mark}][x_{mark}"
        whole = f"&{self.shared}[{buffer}]{place}], {source.format('')}, W * {size}, inside_ ? 0 : W * {size}"
        return self._each(first, [
            f"if constexpr (W * {size} <= 16) {{",
            f"  __pipeline_memcpy_async({whole});",
            "} else {",
            *nest(one(f"{place} + j_]")),
            "}",
        ])  # fmt: skip

    def _stride(self, *, across: bool) -> str:
        group = self.across if across else (self.operands.product.k,)
        return self.operands.context.stride(self.load.axes, group)

    def _loop(self) -> list[str]:
        return ["#pragma unroll", f"for (int i_ = 0; i_ < EACH_{self.mark}; ++i_) {{"]

    def _mine(self) -> str:
        """The condition that pack i_ exists for a thread; a compile-time truth where every thread has as many packs."""
        packs = f"PACKS_{self.mark}"
        return f"{packs} % TILE_THREADS == 0 || int(threadIdx.x) + i_ * TILE_THREADS < {packs}"

    def _each(self, first: bool, body: list[str]) -> list[str]:
        """The loop of a thread over its packs; `body` may use i_, at_ (the address to read) and inside_."""
        mark = self.mark
        skip = f" + i_ * SKIP_{mark}"
        x, k = (f"x_{mark}{skip}", f"k_{mark}") if self.by_depth else (f"x_{mark}", f"k_{mark}{skip}")
        inside = f"{x} < {self.room}" + (f" && {k} < begin_" if first else "")
        return [
            *self._loop(),
            f"  if ({self._mine()}) {{",
            f"    const {self.element}* at_ = from_{mark} + i_ * step_{mark};",
            f"    const bool inside_ = {inside};",
            *nest(nest(body)),
            "  }",
            "}",
        ]
