"""C++: matrix products as a plain triple loop, as a loop that reads memory in order, and on packed panels."""

from __future__ import annotations

from warpsmith.lowering.emitter import Context, Emitter, stored
from warpsmith.lowering.expressions import Unsupported
from warpsmith.lowering.plan_switches import PlanSwitches
from warpsmith.lowering.stages import MatrixProduct, TemplateStage, product_of


class ProductOperands:
    """A matrix product in C: extents, strides, elements, and the element-wise operations after the sum."""

    def __init__(self, context: Context, stage: TemplateStage) -> None:
        product = product_of(stage.reduces[0])
        if product is None:
            raise Unsupported("no product")
        self.context = context
        self.stage = stage
        self.product: MatrixProduct = product
        self.kind = stage.reduces[0].ctype
        self.batch = stage.outer[0] if len(stage.outer) == 3 else ()
        self.sizes = [
            f"const int64_t batch_ = {context.extent(self.batch)};",
            f"const int64_t m_ = {context.extent(product.m)};",
            f"const int64_t n_ = {context.extent(product.n)};",
            f"const int64_t depth_ = {context.extent((product.k,))};",
        ]

    def element(self, side: str, row: str, column: str, raw: bool = False) -> str:
        """The element of A or B at (row, column), converted to the type of the sum unless `raw`."""
        batch = "batch_at_"
        load = self.product.left if side == "left" else self.product.right
        outer = self.product.m if side == "left" else (self.product.k,)
        inner = (self.product.k,) if side == "left" else self.product.n
        place = self.context.offset(load.axes, [(self.batch, batch), (outer, row), (inner, column)])
        text = f"{self.context.names[load.name]}[{place}]"
        if raw:
            return text
        return text if self.context.element(load.name) == self.kind else f"static_cast<{self.kind}>({text})"

    def stride(self, side: str, axis: int) -> str:
        """The distance between neighbours of an operand along an axis."""
        load = self.product.left if side == "left" else self.product.right
        return self.context.stride(load.axes, (axis,))

    def store(self, total: str, row: str, column: str) -> list[str]:
        """Lines that apply the element-wise operations to one sum and store the results."""
        lines, ends = self.end(total, row, column)
        return [*lines, *(f"{pointer}[0] = {value};" for _, pointer, value in ends)]

    def end(self, total: str, row: str, column: str) -> tuple[list[str], list[tuple[str, str, str]]]:
        """Lines that apply the element-wise operations to one sum, and type, pointer and value of each output."""
        batch = "batch_at_"
        where = [(self.batch, batch), (self.product.m, row), (self.product.n, column)]

        end = Emitter(self.context, lambda e: self.context.read(e, where), {self.stage.reduces[0]: total})
        found = []
        for store in self.stage.stores:
            value = stored(self.context, store, end.value(store.expr))
            pointer = f"({self.context.names[store.target]} + {self.context.offset(store.axes, where)})"
            found.append((self.context.element(store.target), pointer, value))
        return end.lines, found


def product_stage(context: Context, stage: TemplateStage, on: PlanSwitches, used: str) -> tuple[list[str], str]:
    """The lines of a matrix product, and the bytes of workspace used after it, in C ("" if it needs no workspace)."""
    operands = ProductOperands(context, stage)
    if "register-tile" in on and "packed-panels" in on:
        return _packed(operands, on, used)
    if "cache-blocking" in on:
        return _in_order(operands, on), ""
    return _plain(operands, on), ""


def _rows(on: PlanSwitches) -> list[str]:
    if "parallel-rows" not in on:
        return []
    chunk = f", {on.macro('CHUNK', 'static-chunks', 'chunk')}" if "static-chunks" in on else ""
    return [f"#pragma omp parallel for schedule(static{chunk})"]


def _plain(operands: ProductOperands, on: PlanSwitches) -> list[str]:
    """A triple loop that finishes one sum before the next."""
    simd = ["#pragma omp simd reduction(+ : total_)"] if "simd" in on else []
    unroll = [f"#pragma GCC unroll {on.get('unroll', 'factor')}"] if "unroll" in on and not simd else []
    left, right = operands.element("left", "row_at_", "k_"), operands.element("right", "k_", "j_")
    return [
        *operands.sizes,
        *_rows(on),
        "for (int64_t item_ = 0; item_ < batch_ * m_; ++item_) {",
        "  const int64_t batch_at_ = item_ / m_, row_at_ = item_ % m_;",
        "  for (int64_t j_ = 0; j_ < n_; ++j_) {",
        f"    {operands.kind} total_ = 0;",
        *simd,
        *unroll,
        f"    for (int64_t k_ = 0; k_ < depth_; ++k_) total_ += {left} * {right};",
        *(f"    {line}" for line in operands.store("total_", "row_at_", "j_")),
        "  }",
        "}",
    ]


def _in_order(operands: ProductOperands, on: PlanSwitches) -> list[str]:
    """Loops over tiles of an output row, so that rows of B are read in order and stay in the cache."""
    tile = on.macro("TILE", "cache-blocking", "tile")
    simd = ["#pragma omp simd"] if "simd" in on else []
    left, right = operands.element("left", "row_at_", "k_"), operands.element("right", "k_", "(first_ + j_)")
    return [
        *operands.sizes,
        f"const int64_t tiles_ = (n_ + {tile} - 1) / {tile};",
        *_rows(on),
        "for (int64_t item_ = 0; item_ < batch_ * m_ * tiles_; ++item_) {",
        "  const int64_t batch_at_ = item_ / (m_ * tiles_);",
        f"  const int64_t first_ = item_ / m_ % tiles_ * {tile}, row_at_ = item_ % m_;",
        f"  const int64_t width_ = n_ - first_ < {tile} ? n_ - first_ : {tile};",
        f"  {operands.kind} total_[{tile}];",
        "  for (int64_t j_ = 0; j_ < width_; ++j_) total_[j_] = 0;",
        "  for (int64_t k_ = 0; k_ < depth_; ++k_) {",
        f"    const {operands.kind} a_ = {left};",
        *simd,
        f"    for (int64_t j_ = 0; j_ < width_; ++j_) total_[j_] += a_ * {right};",
        "  }",
        "  for (int64_t j_ = 0; j_ < width_; ++j_) {",
        *(f"    {line}" for line in operands.store("total_[j_]", "row_at_", "first_ + j_")),
        "  }",
        "}",
    ]


def _packed(operands: ProductOperands, on: PlanSwitches, used: str) -> tuple[list[str], str]:
    """Loops that copy the operands to panels, which the innermost loop reads in order; sums are in vector registers."""
    rows = on.macro("TILE_ROWS", "register-tile", "rows")
    on.tune("TILE_VECTORS", "2", ("2", "1", "3"))
    kind = operands.kind
    lanes = 64 // (4 if kind == "float" else 8)
    columns = f"(TILE_VECTORS * {lanes})"
    size = 4 if kind == "float" else 8
    m, n, k, batch = ("m_", "n_", "depth_", "batch_")
    extents = {
        "batch_": operands.context.extent(operands.batch),
        "m_": operands.context.extent(operands.product.m),
        "n_": operands.context.extent(operands.product.n),
        "depth_": operands.context.extent((operands.product.k,)),
    }
    panels = f"((({extents['n_']}) + {columns} - 1) / {columns})"
    strips = f"((({extents['m_']}) + {rows} - 1) / {rows})"
    depth = f"({extents['depth_']})"
    right_bytes = f"{panels} * {depth} * {columns} * {size}"
    left_bytes = f"{strips} * {depth} * {rows} * {size}"
    workspace = f"{used} + ({right_bytes} + 255) / 256 * 256 + {left_bytes}"
    pragma = ["#pragma omp parallel for schedule(static)"] if "parallel-rows" in on else []
    zero = f"static_cast<{kind}>(0)"
    right, left = operands.element("right", "k_", "column_"), operands.element("left", "row_at_", "k_")
    skip = f"({right_bytes} + 255) / 256 * 256"
    body = [
        f"typedef {kind} vec_ __attribute__((vector_size(64)));",
        *operands.sizes,
        f"const int64_t panels_ = ({n} + {columns} - 1) / {columns}, strips_ = ({m} + {rows} - 1) / {rows};",
        f"{kind}* right_ = reinterpret_cast<{kind}*>(static_cast<char*>(workspace) + ({used}));",
        f"{kind}* left_ = reinterpret_cast<{kind}*>(reinterpret_cast<char*>(right_) + {skip});",
        f"for (int64_t batch_at_ = 0; batch_at_ < {batch}; ++batch_at_) {{",
        *pragma,
        "  for (int64_t panel_ = 0; panel_ < panels_; ++panel_) {",
        f"    for (int64_t k_ = 0; k_ < {k}; ++k_) {{",
        f"      for (int64_t j_ = 0; j_ < {columns}; ++j_) {{",
        f"        const int64_t column_ = panel_ * {columns} + j_;",
        f"        const int64_t place_ = (panel_ * {k} + k_) * {columns} + j_;",
        f"        right_[place_] = column_ < {n} ? {right} : {zero};",
        "      }",
        "    }",
        "  }",
        *pragma,
        "  for (int64_t strip_ = 0; strip_ < strips_; ++strip_) {",
        f"    for (int64_t i_ = 0; i_ < {rows}; ++i_) {{",
        f"      const int64_t row_at_ = strip_ * {rows} + i_;",
        f"      for (int64_t k_ = 0; k_ < {k}; ++k_)",
        f"        left_[(strip_ * {k} + k_) * {rows} + i_] = row_at_ < {m} ? {left} : {zero};",
        "    }",
        "  }",
        *_micro(operands, on, rows, columns, lanes),
        "}",
    ]
    return body, workspace


def _micro(operands: ProductOperands, on: PlanSwitches, rows: str, columns: str, lanes: int) -> list[str]:
    """The loops over the packed panels: groups of strips of A times each panel of B, one register tile at a time."""
    kind = operands.kind
    blocked = on.macro("TILE", "cache-blocking", "tile") if "cache-blocking" in on else ""
    group = f"std::max<int64_t>(1, {blocked} / {rows})" if blocked else "strips_"
    pragma = ["#pragma omp parallel for collapse(2) schedule(static)"] if "parallel-rows" in on else []
    return [
        f"  const int64_t group_ = {group};",
        "  const int64_t groups_ = (strips_ + group_ - 1) / group_;",
        *pragma,
        "  for (int64_t group_at_ = 0; group_at_ < groups_; ++group_at_) {",
        "    for (int64_t panel_ = 0; panel_ < panels_; ++panel_) {",
        "      const int64_t end_ = std::min(strips_, (group_at_ + 1) * group_);",
        "      for (int64_t strip_ = group_at_ * group_; strip_ < end_; ++strip_) {",
        f"        const {kind}* a_ = left_ + strip_ * depth_ * {rows};",
        f"        const vec_* b_ = reinterpret_cast<const vec_*>(right_ + panel_ * depth_ * {columns});",
        f"        vec_ sum_[{rows}][TILE_VECTORS] = {{}};",
        "        for (int64_t k_ = 0; k_ < depth_; ++k_) {",
        "#pragma GCC unroll 16",
        f"          for (int i_ = 0; i_ < {rows}; ++i_) {{",
        "#pragma GCC unroll 4",
        "            for (int v_ = 0; v_ < TILE_VECTORS; ++v_) sum_[i_][v_] += a_[i_] * b_[v_];",
        "          }",
        f"          a_ += {rows};",
        "          b_ += TILE_VECTORS;",
        "        }",
        f"        alignas(64) {kind} tile_[{rows} * {columns}];",
        "#pragma GCC unroll 16",
        f"        for (int i_ = 0; i_ < {rows}; ++i_) {{",
        "#pragma GCC unroll 4",
        "          for (int v_ = 0; v_ < TILE_VECTORS; ++v_)",
        f"            *reinterpret_cast<vec_*>(tile_ + i_ * {columns} + v_ * {lanes}) = sum_[i_][v_];",
        "        }",
        f"        for (int i_ = 0; i_ < {rows} && strip_ * {rows} + i_ < m_; ++i_) {{",
        f"          const int64_t row_at_ = strip_ * {rows} + i_;",
        f"          for (int64_t j_ = 0; j_ < {columns} && panel_ * {columns} + j_ < n_; ++j_) {{",
        f"            const int64_t column_ = panel_ * {columns} + j_;",
        f"            const {kind} total_ = tile_[i_ * {columns} + j_];",
        *(f"            {line}" for line in operands.store("total_", "row_at_", "column_")),
        "          }",
        "        }",
        "      }",
        "    }",
        "  }",
    ]
