"""CUDA: matrix products. One thread per element, or tiles through shared memory and registers.

What differs between plans (how tiles are copied, buffered and stored) is put together from small pieces of text; the
kernel on tensor cores is in `cuda_tensor`.
"""

from __future__ import annotations

from warpsmith.strategies.templates import cuda_tensor
from warpsmith.strategies.templates.code import Context, nest
from warpsmith.strategies.templates.cpu_product import Operands
from warpsmith.strategies.templates.cuda_packs import Kernel, arguments
from warpsmith.strategies.templates.cuda_tensor import header
from warpsmith.strategies.templates.stages import Stage
from warpsmith.strategies.templates.switches import Switches


def product_kernel(context: Context, stage: Stage, on: Switches, used: str) -> Kernel:
    """The kernel, or two where the depth is shared between blocks."""

    operands = Operands(context, stage)
    if "shared-tile" not in on:
        return _plain(operands)
    if "tensor-cores" in on:
        return cuda_tensor.tensor_kernel(operands, on)
    return _Tiled(operands, on, used).kernel()


def _plain(operands: Operands) -> Kernel:
    """One element of the result per thread."""
    left, right = operands.element("left", "row_at_", "k_"), operands.element("right", "k_", "column_")
    body = [
        "const int64_t at_ = int64_t(blockIdx.x) * 256 + threadIdx.x;",
        "if (at_ >= batch_ * m_ * n_) return;",
        "const int64_t column_ = at_ % n_, row_at_ = at_ / n_ % m_, batch_at_ = at_ / n_ / m_;",
        f"{operands.kind} total_ = 0;",
        f"for (int64_t k_ = 0; k_ < depth_; ++k_) total_ += {left} * {right};",
        *operands.store("total_", "row_at_", "column_"),
    ]
    text = [*header(operands, "product_", "256"), *nest(body), "}"]
    extents = _extents(operands)
    launch = [
        f"const int64_t blocks_ = ({extents['batch']} * ({extents['m']}) * ({extents['n']}) + 255) / 256;",
        f"product_<<<blocks_, 256, 0, stream_>>>({arguments(operands.context)});",
    ]
    return Kernel("\n".join(text) + "\n", launch)


def _extents(operands: Operands) -> dict[str, str]:
    context, product = operands.context, operands.product
    return {
        "batch": f"({context.extent(operands.batch)})",
        "m": context.extent(product.m),
        "n": context.extent(product.n),
        "k": context.extent((product.k,)),
    }


class _Tiled:
    """Tiles of both operands in shared memory, a tile of sums per thread in registers."""

    def __init__(self, operands: Operands, on: Switches, used: str) -> None:
        self.operands = operands
        self.on = on
        self.used = used
        self.kind = operands.kind
        product = operands.product
        self.left_by_depth = operands.stride("left", product.k) == "1"  # neighbours along the depth lie side by side
        self.right_by_depth = operands.stride("right", product.k) == "1"
        self.split = "split-k" in on
        element = {operands.context.element(e.name) for e in (product.left, product.right)}
        # An asynchronous copy cannot convert.
        self.asynchronous = "async-copy" in on and element == {self.kind}
        self.buffers = 2 if "double-buffer" in on or self.asynchronous else 1

    def kernel(self) -> Kernel:
        on, extents = self.on, _extents(self.operands)
        on.macro("TILE_DEPTH", "shared-tile", "depth")
        if "register-tile" in on:
            on.macro("THREAD_ROWS", "register-tile", "rows")
        if self.split:
            on.macro("SPLIT", "split-k", "parts")
        extra = f", {self.kind}* __restrict__ partial_" if self.split else ""
        body = [*self._places(), *self._loop(), *self._end()]
        text = [
            *self._constants(),
            *header(self.operands, "product_", "TILE_THREADS, 2", extra, "template <int W>"),
            *nest(body),
            "}",
        ]
        tiles = f"((({extents['m']}) + TILE_M - 1) / TILE_M) * ((({extents['n']}) + TILE_N - 1) / TILE_N)"
        lines = [f"const dim3 grid_({tiles}, 1, {extents['batch']}{' * SPLIT' if self.split else ''});"]
        given = arguments(self.operands.context)
        workspace = ""
        if self.split:
            begin = f"static_cast<char*>(workspace) + ({self.used})"
            lines.append(f"{self.kind}* partial_ = reinterpret_cast<{self.kind}*>({begin});")
            given += ", partial_"
            size = 8 if self.kind == "double" else 4
            workspace = f"{self.used} + {size} * SPLIT * {extents['batch']} * ({extents['m']}) * ({extents['n']})"
        narrow = f"product_<1><<<grid_, TILE_THREADS, 0, stream_>>>({given});"
        if "vector-loads" in on:
            on.macro("VECTOR", "vector-loads", "width")
            wide = f"product_<VECTOR><<<grid_, TILE_THREADS, 0, stream_>>>({given});"
            lines += [f"if ({self._divides()}) {{", f"  {wide}", "} else {", f"  {narrow}", "}"]
        else:
            lines.append(narrow)
        if self.split:
            second, call = self._sum()
            text += second
            lines += call
        return Kernel("\n".join(text) + "\n", lines, workspace)

    def _divides(self) -> str:
        """Whether rows of operands and result can be read and written in packs."""
        extents = _extents(self.operands)
        words = {
            extents["k"] if self.left_by_depth else extents["m"],
            extents["k"] if self.right_by_depth else extents["n"],
        }
        return " && ".join(f"({word}) % VECTOR == 0" for word in sorted({*words, extents["n"]}))

    def _constants(self) -> list[str]:
        rows = "THREAD_ROWS" if "register-tile" in self.on else "1"
        return [
            f"constexpr int TM = {rows}, TN = {rows};  // sums of a thread",
            "constexpr int TILE_M = 16 * TM, TILE_N = 16 * TN, TILE_THREADS = 256;",
            f"constexpr int PAD = {4 if 'padded-shared' in self.on else 0};",
            f"constexpr int ROW_BYTES = {self.buffers} * (TILE_M + TILE_N + 2 * PAD) * int(sizeof({self.kind}));",
            "constexpr int ROOM = 46 << 10;  // of shared memory, declared at compile time",
            "constexpr int HALF = TILE_DEPTH * ROW_BYTES <= ROOM ? TILE_DEPTH : TILE_DEPTH / 2;",
            "constexpr int DEPTH = HALF * ROW_BYTES <= ROOM ? HALF : HALF / 2;",
            "constexpr int GROUP = TM < 4 ? TM : 4;  // neighbouring rows and columns of a thread",
            "template <typename T>",
            "__device__ __forceinline__ void copy_group(T* to, const T* from) {",
            "  const Pack<T, GROUP> group = *reinterpret_cast<const Pack<T, GROUP>*>(from);",
            "#pragma unroll",
            "  for (int i = 0; i < GROUP; ++i) to[i] = group.at[i];",
            "}",
            "",
        ]

    def _places(self) -> list[str]:
        """Where the block and the thread are."""
        batch = "blockIdx.z / SPLIT" if self.split else "blockIdx.z"
        first, last = (
            ("depth_ * part_at_ / SPLIT / W * W", "depth_ * (part_at_ + 1) / SPLIT / W * W")
            if self.split
            else ("0", "depth_")
        )
        return [
            "const int64_t tiles_n_ = (n_ + TILE_N - 1) / TILE_N;",
            "const int64_t row0_ = blockIdx.x / tiles_n_ * TILE_M, column0_ = blockIdx.x % tiles_n_ * TILE_N;",
            f"const int64_t batch_at_ = {batch};",
            *(["const int64_t part_at_ = blockIdx.z % SPLIT;"] if self.split else []),
            f"const int64_t first_ = {first};",
            f"const int64_t last_ = {'part_at_ + 1 == SPLIT ? depth_ : ' if self.split else ''}{last};",
            # A warp covers four by eight threads, so that its reads of shared memory are few and wide.
            "const int tx_ = threadIdx.x % 8 + 8 * (threadIdx.x / 32 % 2);",
            "const int ty_ = threadIdx.x % 32 / 8 + 4 * (threadIdx.x / 64);",
            f"__shared__ __align__(16) {self.kind} left_[{self.buffers}][DEPTH][TILE_M + PAD];",
            f"__shared__ __align__(16) {self.kind} right_[{self.buffers}][DEPTH][TILE_N + PAD];",
            f"{self.kind} sum_[TM][TN] = {{}};",
        ]

    def _tile(self, side: str, step: str, inside: str) -> list[str]:
        """The loop of a thread over its packs of a tile: `inside` sees i_ (which pack), k_, x_ (place in the tile)."""
        by_depth = self.left_by_depth if side == "left" else self.right_by_depth
        width = "TILE_M" if side == "left" else "TILE_N"
        count = f"(DEPTH * {width} / W + TILE_THREADS - 1) / TILE_THREADS"
        fast, slow = ("DEPTH", "x_") if by_depth else (width, "k_")
        fast_name = "k_" if by_depth else "x_"
        origin, limit = ("row0_", "m_") if side == "left" else ("column0_", "n_")
        return [
            "#pragma unroll",
            f"for (int i_ = 0; i_ < {count}; ++i_) {{",
            "  const int at_ = i_ * TILE_THREADS + threadIdx.x;",
            f"  const int {fast_name} = at_ % ({fast} / W) * W, {slow} = at_ / ({fast} / W);",
            f"  const int64_t deep_ = {step} + k_, across_ = {origin} + x_;",
            f"  if (at_ < DEPTH * {width} / W) {{",
            f"    const bool inside_ = deep_ < last_ && across_ < {limit};",
            *nest(nest(inside.split("\n"))),
            "  }",
            "}",
        ]

    def _source(self, side: str) -> str:
        """A pointer to the first element of a pack in global memory."""
        load = self.operands.product.left if side == "left" else self.operands.product.right
        place = self.operands.context.offset(load.axes, [
            (self.operands.batch, "batch_at_"),
            (self.operands.product.m if side == "left" else self.operands.product.n, "across_"),
            ((self.operands.product.k,), "deep_"),
        ])  # fmt: skip
        return f"{self.operands.context.names[load.name]} + {place}"

    def _element(self, side: str) -> str:
        load = self.operands.product.left if side == "left" else self.operands.product.right
        return self.operands.context.element(load.name)

    def _shift(self, side: str) -> str:
        """The place of element j_ of a pack in the shared tile."""
        by_depth = self.left_by_depth if side == "left" else self.right_by_depth
        return "[k_ + j_][x_]" if by_depth else "[k_][x_ + j_]"

    def _direct(self, side: str, step: str, buffer: str) -> list[str]:
        """Global to shared memory at once."""
        kind = self._element(side)
        inside = (
            f"Pack<{kind}, W> pack_;\n"
            f"if (inside_) pack_ = load_pack<W>({self._source(side)});\n"
            "#pragma unroll\n"
            f"for (int j_ = 0; j_ < W; ++j_) {side}_[{buffer}]{self._shift(side)} = "
            f"inside_ ? static_cast<{self.kind}>(pack_.at[j_]) : {self.kind}(0);"
        )
        return self._tile(side, step, inside)

    def _copied(self, side: str, step: str, buffer: str) -> list[str]:
        """The same, asynchronously; packs go in one piece where the tile lies like the operand."""
        by_depth = self.left_by_depth if side == "left" else self.right_by_depth
        source = self._source(side)
        size = f"sizeof({self.kind})"
        if by_depth:
            copy = (
                "#pragma unroll\n"
                "for (int j_ = 0; j_ < W; ++j_)\n"
                f"  __pipeline_memcpy_async(&{side}_[{buffer}][k_ + j_][x_], {source} + j_, {size});"
            )
        else:
            copy = (
                f"if constexpr (W * {size} <= 16 && PAD % W == 0) {{\n"
                f"  __pipeline_memcpy_async(&{side}_[{buffer}][k_][x_], {source}, W * {size});\n"
                "} else {\n"
                "#pragma unroll\n"
                "  for (int j_ = 0; j_ < W; ++j_)\n"
                f"    __pipeline_memcpy_async(&{side}_[{buffer}][k_][x_ + j_], {source} + j_, {size});\n"
                "}"
            )
        inside = (
            f"if (inside_) {{\n{copy}\n}} else {{\n#pragma unroll\n"
            f"  for (int j_ = 0; j_ < W; ++j_) {side}_[{buffer}]{self._shift(side)} = 0;\n}}"
        )
        return self._tile(side, step, inside)

    def _fetched(self, side: str, step: str) -> list[str]:
        """Global memory to registers."""
        name = "fetched_a_" if side == "left" else "fetched_b_"
        return self._tile(side, step, f"if (inside_) {name}[i_] = load_pack<W>({self._source(side)});")

    def _placed(self, side: str, step: str, buffer: str) -> list[str]:
        """Registers to shared memory."""
        name = "fetched_a_" if side == "left" else "fetched_b_"
        inside = (
            "#pragma unroll\n"
            f"for (int j_ = 0; j_ < W; ++j_) {side}_[{buffer}]{self._shift(side)} = "
            f"inside_ ? static_cast<{self.kind}>({name}[i_].at[j_]) : {self.kind}(0);"
        )
        return self._tile(side, step, inside)

    def _compute(self, buffer: str) -> list[str]:
        """All products of one tile."""
        return [
            "#pragma unroll",
            "for (int k_ = 0; k_ < DEPTH; ++k_) {",
            f"  {self.kind} a_[TM], b_[TN];",
            "#pragma unroll",
            "  for (int i_ = 0; i_ < TM; i_ += GROUP)",
            f"    copy_group<{self.kind}>(a_ + i_, &left_[{buffer}][k_][i_ * 16 + ty_ * GROUP]);",
            "#pragma unroll",
            "  for (int j_ = 0; j_ < TN; j_ += GROUP)",
            f"    copy_group<{self.kind}>(b_ + j_, &right_[{buffer}][k_][j_ * 16 + tx_ * GROUP]);",
            "#pragma unroll",
            "  for (int i_ = 0; i_ < TM; ++i_)",
            "#pragma unroll",
            "    for (int j_ = 0; j_ < TN; ++j_) sum_[i_][j_] += a_[i_] * b_[j_];",
            "}",
        ]

    def _loop(self) -> list[str]:
        """Through the depth, tile by tile."""
        loop = "for (int64_t step_ = first_; step_ < last_; step_ += DEPTH) {"
        if self.buffers == 1:
            body = [*self._direct("left", "step_", "0"), *self._direct("right", "step_", "0"), "__syncthreads();"]
            return [loop, *nest([*body, *self._compute("0"), "__syncthreads();"]), "}"]
        next_ = "step_ + DEPTH"
        if self.asynchronous:
            begin = [
                *self._copied("left", "first_", "0"),
                *self._copied("right", "first_", "0"),
                "__pipeline_commit();",
            ]
            begin += ["__pipeline_wait_prior(0);", "__syncthreads();", "int now_ = 0;"]
            ahead = [*self._copied("left", next_, "1 - now_"), *self._copied("right", next_, "1 - now_")]
            body = [f"if ({next_} < last_) {{", *nest(ahead), "}", "__pipeline_commit();", *self._compute("now_")]
            body += ["__pipeline_wait_prior(0);", "__syncthreads();", "now_ = 1 - now_;"]
            return [*begin, loop, *nest(body), "}"]
        count = "(DEPTH * {} / W + TILE_THREADS - 1) / TILE_THREADS"
        begin = [
            f"Pack<{self._element('left')}, W> fetched_a_[{count.format('TILE_M')}];",
            f"Pack<{self._element('right')}, W> fetched_b_[{count.format('TILE_N')}];",
            *self._direct("left", "first_", "0"),
            *self._direct("right", "first_", "0"),
            "__syncthreads();",
            "int now_ = 0;",
        ]
        more = f"if ({next_} < last_) {{"
        body = [
            more,
            *nest([*self._fetched("left", next_), *self._fetched("right", next_)]),
            "}",
            *self._compute("now_"),
        ]
        body += [
            more,
            *nest([*self._placed("left", next_, "1 - now_"), *self._placed("right", next_, "1 - now_")]),
            "}",
        ]
        body += ["__syncthreads();", "now_ = 1 - now_;"]
        return [*begin, loop, *nest(body), "}"]

    def _end(self) -> list[str]:
        """The element-wise end and the stores, a group of neighbouring columns at a time."""
        if self.split:
            place = "partial_ + ((part_at_ * batch_ + batch_at_) * m_ + row_at_) * n_"
            lines = list[str]()
            ends = [(self.kind, f"({place} + column_)", "total_")]
        else:
            lines, ends = self.operands.end("total_", "row_at_", "column_")
        each = [f"const {self.kind} total_ = sum_[i_][j_ + c_];", *lines]
        each += [f"out{n}_.at[c_] = {value};" for n, (_, _, value) in enumerate(ends)]
        body = [
            "const int64_t row_at_ = row0_ + i_ / GROUP * GROUP * 16 + ty_ * GROUP + i_ % GROUP;",
            "const int64_t first_column_ = column0_ + j_ * 16 + tx_ * GROUP;",
            "if (row_at_ >= m_ || first_column_ >= n_) continue;",
            *(f"Pack<{kind}, GROUP> out{n}_;" for n, (kind, _, _) in enumerate(ends)),
            "#pragma unroll",
            "for (int c_ = 0; c_ < GROUP; ++c_) {",
            "  const int64_t column_ = first_column_ + c_ < n_ ? first_column_ + c_ : n_ - 1;",
            *nest(each),
            "}",
            "const int64_t column_ = first_column_;",
            "if (W > 1) {",
            *(f"  store_pack<GROUP>({pointer}, out{n}_);" for n, (_, pointer, _) in enumerate(ends)),
            "} else {",
            "#pragma unroll",
            "  for (int c_ = 0; c_ < GROUP; ++c_)",
            "    if (column_ + c_ < n_) {",
            *(f"      {pointer}[c_] = out{n}_.at[c_];" for n, (_, pointer, _) in enumerate(ends)),
            "    }",
            "}",
        ]
        return [
            "#pragma unroll",
            "for (int i_ = 0; i_ < TM; ++i_) {",
            "#pragma unroll",
            "  for (int j_ = 0; j_ < TN; j_ += GROUP) {",
            *nest(nest(body)),
            "  }",
            "}",
        ]

    def _sum(self) -> tuple[list[str], list[str]]:
        """The second kernel, which adds the parts."""
        body = [
            "const int64_t at_ = int64_t(blockIdx.x) * 256 + threadIdx.x;",
            "if (at_ >= batch_ * m_ * n_) return;",
            "const int64_t column_ = at_ % n_, row_at_ = at_ / n_ % m_, batch_at_ = at_ / n_ / m_;",
            f"{self.kind} total_ = 0;",
            "for (int part_at_ = 0; part_at_ < SPLIT; ++part_at_)",
            "  total_ += partial_[part_at_ * batch_ * m_ * n_ + at_];",
            *self.operands.store("total_", "row_at_", "column_"),
        ]
        extents = _extents(self.operands)
        text = [
            *header(self.operands, "add_parts_", "256", f", const {self.kind}* __restrict__ partial_"),
            *nest(body),
            "}",
        ]
        count = f"({extents['batch']} * ({extents['m']}) * ({extents['n']}) + 255) / 256"
        return text, [f"add_parts_<<<{count}, 256, 0, stream_>>>({arguments(self.operands.context)}, partial_);"]
