"""CUDA: the tile of one operand of a matrix product, on its way from global to shared memory.

A thread works out once where its packs of a tile lie: they are a fixed distance apart, and from one tile to the next
its pointer moves on. The first tile takes what is left when the depth is cut into whole tiles, so that all others are
whole and only their place across the operand has to be looked at; sums still run from the first element to the last.
"""

from __future__ import annotations

from warpsmith.kernel_templates.cpu_product import ProductOperands
from warpsmith.kernel_templates.emitter import nest


class Tile:
    """The text that moves tiles of one operand; names of the left one end in `_a_`, of the right one in `_b_`."""

    def __init__(self, operands: ProductOperands, side: str, held: str) -> None:
        product = operands.product
        left = side == "left"
        self.load = product.left if left else product.right
        self.across = product.m if left else product.n
        self.operands = operands
        self.shared = f"{side}_"
        self.width = "TILE_M" if left else "TILE_N"
        self.mark = "a_" if left else "b_"
        self.held = f"{held}_{self.mark}"  # the registers it passes through
        self.origin, self.room = ("row0_", "rows_") if left else ("column0_", "columns_")
        self.element = operands.context.element(self.load.name)
        self.by_depth = operands.stride(side, product.k) == "1"  # neighbours along the depth lie side by side

    def places(self) -> list[str]:
        """What a thread has to know: its first pack, how far the next ones are, and where it reads the first."""
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
        """The registers that `fetched` fills."""
        return f"Pack<{self.element}, W> {self.held}[EACH_{self.mark}];"

    def moved(self, count: str) -> str:
        """The pointer `count` further along the depth."""
        stride = self._stride(across=False)
        return f"from_{self.mark} += {count if stride == '1' else f'{count} * ({stride})'};"

    def fetched(self, *, first: bool, when: str = "") -> list[str]:
        """Global memory to registers, with zeros for what is outside along the depth.

        What is outside across the operand, or not wanted (`when`), is anything: only results that nobody stores hang on
        it. So every pack is loaded, from a place that exists: were the loads conditions of something, the compiler
        would move them behind the products, and nothing would hide how long they take.
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
        """Registers to shared memory, in one piece where the tile lies like the operand."""
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
        """Global to shared memory, asynchronously; elements one by one where the tile lies across the operand."""
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
        """Whether pack i_ is there for this thread: always, at compile time, where the packs divide among threads."""
        packs = f"PACKS_{self.mark}"
        return f"{packs} % TILE_THREADS == 0 || int(threadIdx.x) + i_ * TILE_THREADS < {packs}"

    def _each(self, first: bool, body: list[str]) -> list[str]:
        """The loop of a thread over its packs: `body` sees i_, at_ (where it is read) and inside_."""
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
