"""CUDA: matrix products with one thread per element, or with tiles in shared memory and registers.

Also chooses into how many tiles and parts of the depth a product is cut, so that it fills a large device. A `Tile`
is copied from global to shared memory; the kernel on tensor cores is in `cuda_tensor`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from warpsmith.kernel_templates import cuda_tensor
from warpsmith.kernel_templates.cpu_product import ProductOperands
from warpsmith.kernel_templates.cuda_tensor import header
from warpsmith.lowering.cuda_packs import CudaKernel, arguments
from warpsmith.lowering.emitter import Context, length, nest
from warpsmith.lowering.plan_switches import PlanSwitches
from warpsmith.lowering.stages import KernelLayout, StageKind, TemplateStage
from warpsmith.model.brief import Problem


class Tile:
    """Writes the code that copies tiles of an operand; names of the left one end in `_a_`, of the right one `_b_`.

    A thread computes the address of its packs once: they are a fixed distance apart, and its pointer advances from tile
    to tile. The first tile has the remainder of the depth, so that all other tiles are whole along the depth and need
    no check there; sums still run from the first element to the last.
    """

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


def product_kernel(context: Context, stage: TemplateStage, on: PlanSwitches, used: str) -> CudaKernel:
    """The kernel of a matrix product, or two kernels where several blocks share the depth."""

    operands = ProductOperands(context, stage)
    if "shared-tile" not in on:
        return _plain(operands)
    if "tensor-cores" in on:
        return cuda_tensor.tensor_kernel(operands, on)
    return _Tiled(operands, on, used).kernel()


def _plain(operands: ProductOperands) -> CudaKernel:
    """The kernel with one thread per element of the result."""
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
    return CudaKernel("\n".join(text) + "\n", launch)


def _extents(operands: ProductOperands) -> dict[str, str]:
    context, product = operands.context, operands.product
    return {
        "batch": f"({context.extent(operands.batch)})",
        "m": context.extent(product.m),
        "n": context.extent(product.n),
        "k": context.extent((product.k,)),
    }


class _Tiled:
    """The kernel with tiles of both operands in shared memory and a tile of sums per thread in registers."""

    def __init__(self, operands: ProductOperands, on: PlanSwitches, used: str) -> None:
        self.operands = operands
        self.on = on
        self.used = used
        self.kind = operands.kind
        self.size = 4 if self.kind == "float" else 8
        self.split = "split-k" in on
        product = operands.product
        element = {operands.context.element(e.name) for e in (product.left, product.right)}
        # An asynchronous copy cannot convert.
        self.asynchronous = "async-copy" in on and element == {self.kind}
        self.buffers = 2 if "double-buffer" in on or self.asynchronous else 1
        held = "fetched" if "double-buffer" in on else "passed"
        self.tiles = [Tile(operands, side, held) for side in ("left", "right")]

    def kernel(self) -> CudaKernel:
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
            *header(self.operands, "product_", "TILE_THREADS, LEAST_BLOCKS", extra, "template <int W>"),
            *nest(body),
            "}",
        ]
        tiles = f"((({extents['m']}) + TILE_M - 1) / TILE_M) * ((({extents['n']}) + TILE_N - 1) / TILE_N)"
        lines = [  # rows and columns are counted in 32 bits; 1 is cudaErrorInvalidValue
            f"if (int64_t({extents['m']}) >> 32 != 0 || int64_t({extents['n']}) >> 32 != 0) return 1;",
            f"const dim3 grid_({tiles}, 1, {extents['batch']}{' * SPLIT' if self.split else ''});",
        ]
        given = arguments(self.operands.context)
        workspace = ""
        if self.split:
            begin = f"static_cast<char*>(workspace) + ({self.used})"
            lines.append(f"{self.kind}* partial_ = reinterpret_cast<{self.kind}*>({begin});")
            given += ", partial_"
            workspace = f"{self.used} + {self.size} * SPLIT * {extents['batch']} * ({extents['m']}) * ({extents['n']})"
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
        return CudaKernel("\n".join(text) + "\n", lines, workspace)

    def _divides(self) -> str:
        """The condition, in C, under which operands and result are read and written in packs."""
        extents = _extents(self.operands)
        words = {extents["k"] if t.by_depth else extents[name] for t, name in zip(self.tiles, "mn", strict=True)}
        return " && ".join(f"({word}) % VECTOR == 0" for word in sorted({*words, extents["n"]}))

    def _constants(self) -> list[str]:
        rows = "THREAD_ROWS" if "register-tile" in self.on else "1"
        return [
            f"constexpr int TM = {rows}, TN = TM < 8 ? TM : 8;  // sums of a thread",
            "constexpr int TILE_M = 16 * TM, TILE_N = 16 * TN, TILE_THREADS = 256;",
            f"constexpr int LEAST_BLOCKS = TM * TN * {self.size} > 256 ? 1 : 2;  // whose registers fit on a processor",
            f"constexpr int PAD = {4 if 'padded-shared' in self.on else 0};",
            f"constexpr int ROW_BYTES = {self.buffers} * (TILE_M + TILE_N + 2 * PAD) * {self.size};",
            "constexpr int FITS = (46 << 10) / ROW_BYTES;  // into shared memory declared at compile time",
            "constexpr int DEPTH = TILE_DEPTH <= FITS ? TILE_DEPTH : FITS >= 16 ? 16 : FITS >= 8 ? 8 : 4;",
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
        """Lines that compute the tile of a block and the place of a thread in it."""
        batch = "blockIdx.z / SPLIT" if self.split else "blockIdx.z"
        first, last = (
            ("depth_ * part_at_ / SPLIT / W * W", "depth_ * (part_at_ + 1) / SPLIT / W * W")
            if self.split
            else ("0", "depth_")
        )
        return [
            # Blocks are numbered eight rows of tiles at a time, so that blocks that run together read the same data.
            "const unsigned tiles_m_ = (m_ + TILE_M - 1) / TILE_M, tiles_n_ = (n_ + TILE_N - 1) / TILE_N;",
            "const unsigned strip_ = blockIdx.x / (8 * tiles_n_) * 8, inner_ = blockIdx.x % (8 * tiles_n_);",
            "const unsigned high_ = tiles_m_ - strip_ < 8 ? tiles_m_ - strip_ : 8;",
            "const unsigned row0_ = (strip_ + inner_ % high_) * TILE_M, column0_ = inner_ / high_ * TILE_N;",
            "const int rows_ = m_ - row0_ < TILE_M ? int(m_ - row0_) : TILE_M;",
            "const int columns_ = n_ - column0_ < TILE_N ? int(n_ - column0_) : TILE_N;",
            f"const int64_t batch_at_ = {batch};",
            *(["const int64_t part_at_ = blockIdx.z % SPLIT;"] if self.split else []),
            f"const int64_t first_ = {first};",
            f"const int64_t last_ = {'part_at_ + 1 == SPLIT ? depth_ : ' if self.split else ''}{last};",
            "const int begin_ = first_ < last_ ? int((last_ - first_ - 1) % DEPTH) + 1 : 0;  // of the first tile",
            # A warp covers four by eight threads, so that its reads of shared memory are few and wide.
            "const int tx_ = threadIdx.x % 8 + 8 * (threadIdx.x / 32 % 2);",
            "const int ty_ = threadIdx.x % 32 / 8 + 4 * (threadIdx.x / 64);",
            f"__shared__ __align__(32) {self.kind} left_[{self.buffers}][DEPTH][TILE_M + PAD];",
            f"__shared__ __align__(32) {self.kind} right_[{self.buffers}][DEPTH][TILE_N + PAD];",
            f"{self.kind} sum_[TM][TN] = {{}};",
            *(line for tile in self.tiles for line in tile.places()),
        ]

    def _compute(self, buffer: str) -> list[str]:
        """Lines that multiply one tile of A by one tile of B and add to the sums."""
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
        """The loop along the depth, one tile per step."""
        tiles = self.tiles

        def fetched(first: bool = False, when: str = "") -> list[str]:
            return [line for tile in tiles for line in tile.fetched(first=first, when=when)]

        def placed(buffer: str) -> list[str]:
            return [line for tile in tiles for line in tile.placed(buffer)]

        def copied(buffer: str, first: bool = False) -> list[str]:
            return [*(line for tile in tiles for line in tile.copied(buffer, first=first)), "__pipeline_commit();"]

        begin = [] if self.asynchronous else [tile.declared() for tile in tiles]
        begin += copied("0", True) if self.asynchronous else [*fetched(True), *placed("0"), "__syncthreads();"]
        begin += [tile.moved("begin_") for tile in tiles]
        ahead = [tile.moved("DEPTH") for tile in tiles]
        loop = "for (unsigned more_ = unsigned((last_ - first_ - begin_) / DEPTH);; --more_) {"
        if self.buffers == 1:
            body = [*self._compute("0"), "if (more_ == 0) break;", "__syncthreads();"]
            body += [*fetched(), *ahead, *placed("0"), "__syncthreads();"]
            return [*begin, loop, *nest(body), "}"]
        begin.append("int now_ = 0;")
        if self.asynchronous:
            body = ["__pipeline_wait_prior(0);", "__syncthreads();"]
            body += ["if (more_ > 0) {", *nest([*copied("now_ ^ 1"), *ahead]), "}"]
            body += [*self._compute("now_"), "if (more_ == 0) break;"]
        else:
            # A pack is fetched and placed after the last tile, too: see `Tile.fetched`.
            body = [*fetched(when="more_ > 0"), *ahead, *self._compute("now_"), *placed("now_ ^ 1")]
            body += ["__syncthreads();", "if (more_ == 0) break;"]
        return [*begin, loop, *nest([*body, "now_ ^= 1;"]), "}"]

    def _end(self) -> list[str]:
        """Lines that apply the element-wise operations to the sums and store them, one group of columns at a time."""
        if self.split:
            place = "partial_ + ((part_at_ * batch_ + batch_at_) * m_ + row_at_) * n_"
            lines = list[str]()
            ends = [(self.kind, f"({place} + column_)", "total_")]
        else:
            lines, ends = self.operands.end("total_", "row_at_", "column_")
        each = [f"const {self.kind} total_ = sum_[i_][j_ + c_];", *lines]
        each += [f"out{n}_.at[c_] = {value};" for n, (_, _, value) in enumerate(ends)]
        body = [
            "const int64_t row_at_ = int64_t(row0_) + i_ / GROUP * GROUP * 16 + ty_ * GROUP + i_ % GROUP;",
            "const int64_t first_column_ = int64_t(column0_) + j_ * 16 + tx_ * GROUP;",
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
        """The second kernel, which adds the parts of the depth, and its launch."""
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


_MULTIPROCESSORS = 132  # of a large device
_PLACES = 2 * _MULTIPROCESSORS  # a multiprocessor holds two blocks with tiles of 128 by 128
_MOST_TILES = 256  # with no more tiles, several blocks per tile may be a gain
_LONG = 4096  # a depth worth dividing among blocks where most of the device is idle
_LEAST_DEPTH = 256  # of a part
_MOST_PARTS = 128


@dataclass(frozen=True)
class _Shape:
    """The sizes of a matrix product in one workload."""

    batch: int
    m: int
    n: int
    depth: int

    @property
    def tiles(self) -> int:
        """The number of tiles of 128 by 128 results."""
        return self.batch * math.ceil(self.m / 128) * math.ceil(self.n / 128)

    @property
    def few(self) -> bool:
        return self.tiles <= _MOST_TILES

    @property
    def parts(self) -> int:
        """The number of parts of the depth, a power of two, with which every place of the device has a block."""
        wanted = 1 << round(math.log2(max(1.0, _PLACES / max(1, self.tiles))))
        return max(2, min(wanted, _most_parts(self.depth)))


def _most_parts(depth: int) -> int:
    return min(_MOST_PARTS, 1 << int(math.log2(max(2, depth // _LEAST_DEPTH))))


def _shapes(problem: Problem, layout: KernelLayout) -> Iterator[_Shape]:
    for stage in layout.stages:
        if stage.kind is StageKind.PRODUCT:
            for workload in problem.task.workloads:
                *batch, m, n = (length(layout, group, workload) for group in stage.outer)
                yield _Shape(math.prod(batch), m, n, length(layout, stage.along, workload))


def few_tiles(problem: Problem, layout: KernelLayout) -> bool:
    """Whether a product has, in at least one workload, too few tiles to fill a device."""
    return any(shape.few for shape in _shapes(problem, layout))


def leaves_sms_idle(problem: Problem, layout: KernelLayout) -> bool:
    """Whether in every workload the depth is long and the tiles fill less than a quarter of a device."""
    shapes = list(_shapes(problem, layout))
    return bool(shapes) and all(4 * s.tiles < _MULTIPROCESSORS and s.depth >= _LONG for s in shapes)


def tile_rows(problem: Problem, layout: KernelLayout) -> tuple[str, ...]:
    """Rows of results per thread: 16 first where tiles of 256 by 128 fill a device and their sums fit in registers.

    On an H200 a product of 2048 by 8192 by 4096 took a kernel written by hand in this form 2.9 ms with 16 rows, 3.1 ms
    with 8.
    """
    large = any(s.batch * (s.m // 256) * (s.n // 128) >= _MULTIPROCESSORS for s in _shapes(problem, layout))
    single = all(r.ctype == "float" for s in layout.stages if s.kind is StageKind.PRODUCT for r in s.reduces)
    return ("16", "8", "4") if large and single else ("8", "4", "16")


def depth_parts(problem: Problem, layout: KernelLayout) -> tuple[str, ...]:
    """Parts of the depth: first the number that fills a device, then half and double of it."""
    few = [shape for shape in _shapes(problem, layout) if shape.few]
    usual = [shape.parts for shape in few]
    near = [number for each in usual for number in (each // 2, each * 2)]
    most = max(_most_parts(shape.depth) for shape in few)
    return tuple(str(number) for number in dict.fromkeys([*usual, *near]) if 2 <= number <= most)
