"""Operators that templates must get right, as tasks of small and odd sizes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MATRIX = '[{"rows": 5, "cols": 67}, {"rows": 3, "cols": 64}]'
PRODUCT = '[{"m": 33, "n": 45, "k": 70}, {"m": 8, "n": 64, "k": 16}]'
LONG = '[{"rows": 2, "cols": 33_001}, {"rows": 3, "cols": 40_000}]'
X = 'x=normal("rows, cols")'
TWO = 'a=normal("rows, cols"), b=normal("rows, cols")'
EVEN = '[{"heads": 2, "rows": 5, "cols": 12}, {"heads": 3, "rows": 2, "cols": 64}]'
HEADS = 'q=normal("heads, rows, cols")'
HALF = "q.shape[-1] // 2"
IMAGE, IMAGES = 'x=normal("b, 8, h, w")', '[{"b": 2, "h": 3, "w": 5}, {"b": 1, "h": 4, "w": 16}]'
TABLE = 't=normal("words, cols"), ids=integers("rows", low=0, high="words")'
TABLES = '[{"words": 17, "rows": 5, "cols": 12}, {"words": 9, "rows": 11, "cols": 64}]'


@dataclass(frozen=True)
class Operator:
    """One task: its inputs as they are declared, and what it returns."""

    name: str
    inputs: str
    result: str
    workloads: str = MATRIX
    precision: str = "fp32"

    @property
    def text(self) -> str:
        """The task as Python."""
        names = ", ".join(part.split("=")[0].strip() for part in self.inputs.split("), "))
        head = f"@task({self.inputs}, workloads={self.workloads}, precision={self.precision!r})"
        return f"{head}\ndef {self.name}({names}):\n    return {self.result}\n"


OPERATORS: tuple[Operator, ...] = (
    Operator("relu", X, "torch.relu(x)"),
    Operator("gelu_erf", X, "F.gelu(x * 2)"),
    Operator("gelu_tanh", X, 'F.gelu(x * 2, approximate="tanh")'),
    Operator("silu", X, "F.silu(x * 3)"),
    Operator("sigmoid", X, "torch.sigmoid(x * 3)"),
    Operator("tanh", X, "torch.tanh(x)"),
    Operator("elu", X, "F.elu(x, 0.7)"),
    Operator("selu", X, "F.selu(x)"),
    Operator("hardswish", X, "F.hardswish(x * 3)"),
    Operator("hardtanh", X, "F.hardtanh(x)"),
    Operator("hardsigmoid", X, "F.hardsigmoid(x * 3)"),
    Operator("softplus", X, "F.softplus(x * 4, beta=2.0)"),
    Operator("softsign", X, "F.softsign(x)"),
    Operator("mish", X, "F.mish(x * 2)"),
    Operator("leaky_relu", X, "F.leaky_relu(x, 0.2)"),
    Operator("clamped", X, "torch.clamp(x, -0.5, 0.8)"),
    Operator("logsigmoid", X, "F.logsigmoid(x * 5)"),
    Operator("powers", X, "x**3 + x.abs() ** 1.5 + torch.exp(-x) - torch.sqrt(x.abs())"),
    Operator("chosen", X, "torch.where(x > 0.3, x * 2, -x).clamp(max=1.5)"),
    Operator("new_gelu", X, "0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))"),
    Operator(
        "scaled",
        'x=normal("rows, cols"), w=normal("cols", mean=1), b=normal("rows, 1"), s=uniform("1", low=0.5, high=2.0)',
        "torch.relu((x + b) * w / s)",
    ),
    Operator("logs", 'x=uniform("rows, cols", low=0.1, high=3.0)', "torch.log(x) + torch.rsqrt(x) + torch.log1p(x)"),
    Operator(
        "converted",
        'x=normal("rows, cols"), n=integers("rows, cols", low=0, high=9)',
        "(x * n + n.float()).to(torch.float32)",
    ),
    Operator("masked", 'x=normal("rows, cols"), mask=booleans("rows, cols")', "x.masked_fill(mask, -2.0)"),
    Operator("transposed", X, "x.t() * 2 + 1"),
    Operator("softmax", X, "torch.softmax(x * 4, -1)"),
    Operator("log_softmax", X, "F.log_softmax(x, -1)"),
    Operator("softmax_columns", X, "torch.softmax(x, 0)"),
    Operator("logsumexp", X, "torch.logsumexp(x, 1)"),
    Operator("l1_norm", X, "x / torch.mean(torch.abs(x), dim=1, keepdim=True)"),
    Operator("l2_norm", X, "x / torch.norm(x, p=2, dim=1, keepdim=True)"),
    Operator("frobenius", X, 'x / torch.norm(x, p="fro")'),
    Operator("rms_norm", X, "x / torch.sqrt(torch.mean(x**2, dim=-1, keepdim=True) + 1e-5)"),
    Operator("standardised", X, "(x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)"),
    Operator("row_sum", X, "x.sum(-1)"),
    Operator("column_mean", X, "x.mean(0)"),
    Operator("row_max", X, "x.max(dim=-1)"),
    Operator("column_min", X, "x.min(dim=0)[0]"),
    Operator("row_prod", X, "torch.prod(x.abs() * 0.2 + 0.9, dim=1)"),
    Operator("row_argmax", X, "torch.argmax(x, 1)"),
    Operator("column_argmin", X, "torch.argmin(x, 0)"),
    Operator("peaks", X, "x == x.amax(-1, keepdim=True)"),
    Operator("total", X, "x.sum()"),
    Operator("mean_and_peak", X, "x.mean(-1), x.amax(-1)"),
    Operator("entropy", X, "-(torch.softmax(x, -1) * torch.log_softmax(x, -1)).sum(-1).mean()"),
    Operator("variance_of_all", X, "x.var()"),
    Operator(
        "layer_norm",
        'x=normal("rows, cols"), w=normal("cols", mean=1), b=normal("cols")',
        "F.layer_norm(x, w.shape, w, b)",
    ),
    Operator("rms_weighted", 'x=normal("rows, cols"), w=normal("cols", mean=1)', "F.rms_norm(x, w.shape, w, 1e-5) + x"),
    Operator("instance_norm", 'x=normal("rows, 3, cols, 5")', "F.instance_norm(x)"),
    Operator(
        "batch_norm",
        'x=normal("rows, cols"), w=normal("cols", mean=1), b=normal("cols")',
        "F.batch_norm(x, None, None, w, b, training=True)",
    ),
    Operator(
        "batch_rms", 'x=normal("rows, 6, cols, 5")', "x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-5)"
    ),
    Operator("middle_softmax", 'x=normal("rows, 9, cols")', "torch.softmax(x, dim=1)"),
    Operator("mse", TWO, "F.mse_loss(a, b)"),
    Operator("l1", TWO, "F.l1_loss(a, b)"),
    Operator("smooth_l1", TWO, "F.smooth_l1_loss(a, b)"),
    Operator("huber", TWO, 'F.huber_loss(a, b, delta=0.6, reduction="sum")'),
    Operator("hinge", TWO, "torch.mean(torch.clamp(1 - a * b, min=0))"),
    Operator(
        "kl",
        'a=probabilities("rows, cols"), b=probabilities("rows, cols")',
        'F.kl_div(torch.log(a), b, reduction="batchmean")',
    ),
    Operator("cosine", TWO, "torch.mean(1 - F.cosine_similarity(a, b, dim=1))"),
    Operator(
        "triplet",
        'a=normal("rows, cols"), b=normal("rows, cols"), c=normal("rows, cols")',
        "F.triplet_margin_loss(a, b, c)",
    ),
    Operator(
        "cross_entropy", 'x=normal("rows, cols"), y=integers("rows", low=0, high="cols")', "F.cross_entropy(x, y)"
    ),
    Operator("half_softmax", X, "torch.softmax(x, -1)", MATRIX, "fp16"),
    Operator("double_norm", X, "F.layer_norm(x, x.shape[-1:])", MATRIX, "fp64"),
    Operator("brain_gelu", X, "F.gelu(x)", MATRIX, "bf16"),
    Operator("mm", 'a=normal("m, k"), b=normal("k, n")', "a @ b", PRODUCT),
    Operator("linear", 'x=normal("m, k"), w=normal("n, k"), b=normal("n")', "F.relu(F.linear(x, w, b)) * 0.5", PRODUCT),
    Operator("mm_both", 'a=normal("k, m"), b=normal("n, k")', "a.t() @ b.t()", PRODUCT),
    Operator("bmm", 'a=normal("3, m, k"), b=normal("3, k, n")', "torch.bmm(a, b)", PRODUCT),
    Operator("gemv", 'a=normal("m, k"), x=normal("k")', "a @ x", PRODUCT),
    Operator("gemv_t", 'a=normal("k, m"), x=normal("k")', "a.t() @ x", PRODUCT),
    Operator("gram", 'a=normal("m, k")', "a @ a.t()", PRODUCT),
    Operator("mm_tf32", 'a=normal("m, k"), b=normal("k, n")', "a @ b", PRODUCT, "tf32"),
    Operator(
        "linear_half", 'a=normal("m, k"), b=normal("n, k"), c=normal("n")', "F.gelu(a @ b.t() + c)", PRODUCT, "fp16"
    ),
)

MOVING_OPERATORS: tuple[Operator, ...] = (
    Operator(
        "rope_halves",
        f'{HEADS}, c=normal("rows, cols"), s=normal("rows, cols")',
        f"q * c + torch.cat((-q[..., {HALF} :], q[..., : {HALF}]), -1) * s",
        EVEN,
    ),
    Operator(
        "rope_pairs",
        'q=normal("heads, rows, 12"), c=normal("rows, 6"), s=normal("rows, 6")',
        "torch.stack((q[..., 0::2] * c - q[..., 1::2] * s, q[..., 0::2] * s + q[..., 1::2] * c), -1).flatten(-2)",
        '[{"heads": 2, "rows": 5}, {"heads": 1, "rows": 3}]',
    ),
    Operator("geglu", HEADS, "q.chunk(2, -1)[0] * F.gelu(q.chunk(2, -1)[1])", EVEN),
    Operator("glu", HEADS, "F.glu(q, -1)", EVEN),
    Operator("glu_rows", 'x=normal("b, 8, w")', "F.glu(x, 1)", '[{"b": 2, "w": 5}, {"b": 1, "w": 16}]'),
    Operator("qkv", 'x=normal("rows, 36")', "torch.add(*x.split([12, 12, 12], -1)[1:])", '[{"rows": 5}, {"rows": 2}]'),
    Operator("last_rows", HEADS, "q[:, -1] * 2, q.select(-1, 3)", EVEN),
    Operator("ends", HEADS, "q[..., -3:] + q[..., :3]", EVEN),
    Operator("skips", 'x=normal("12, 20")', "x[1::3, 2:18:5]", "[{}]"),
    Operator("unbound", 'x=normal("3, rows, cols")', "x.unbind(0)[2] - x.unbind(0)[0]"),
    Operator("joined_rows", TWO, "torch.cat((a, b * 2, a), 0)"),
    Operator("joined_columns", TWO, "torch.cat((torch.relu(a), b), 1)"),
    Operator("joined_different", 'a=normal("rows, 5"), b=normal("rows, 1")', "torch.cat((a, b), 1)", '[{"rows": 7}]'),
    Operator("stacked", TWO, "torch.stack((a, b, a * b), 1)"),
    Operator("embedded", TABLE, "F.embedding(ids, t) * 4.0", TABLES),
    Operator(
        "embedded_twice",
        'ids=integers("b, rows", high="words"), t=normal("words, cols"), p=normal("rows, cols")',
        "F.embedding(ids, t) + p",
        '[{"b": 2, "words": 17, "rows": 5, "cols": 12}, {"b": 3, "words": 9, "rows": 4, "cols": 64}]',
    ),
    Operator("selected_columns", TABLE.replace("words, cols", "cols, words"), "t.index_select(1, ids)", TABLES),
    Operator("indexed", TABLE, "torch.tanh(t[ids])", TABLES),
    Operator("indexed_from_end", TABLE, "t[ids - t.shape[0]]", TABLES),
    Operator(
        "gathered",
        'x=normal("rows, cols"), i=integers("rows, k", high="cols")',
        "torch.gather(x, 1, i)",
        '[{"rows": 5, "cols": 12, "k": 7}, {"rows": 3, "cols": 64, "k": 9}]',
    ),
    Operator("repeated", X, "x.repeat(2, 3)"),
    Operator("rolled", X, "torch.roll(x, (-2, 70), (0, 1))"),
    Operator("flipped", X, "x.flip(1) + x.flip(0)"),
    Operator("padded", X, "F.pad(x, (2, 1, 0, 3), value=1.5)"),
    Operator("cropped", X, "F.pad(x, (-1, 2))"),
    Operator("shuffled_pixels", IMAGE, "F.pixel_shuffle(x, 2)", IMAGES),
    Operator("unshuffled_pixels", 'x=normal("b, 2, 6, 9")', "F.pixel_unshuffle(x, 3)", '[{"b": 2}]'),
    Operator("upsampled", IMAGE, 'F.interpolate(x, scale_factor=2, mode="nearest")', IMAGES),
    Operator("upsampled_three", 'x=normal("b, 8, w")', "F.interpolate(x, scale_factor=3)", '[{"b": 2, "w": 7}]'),
    Operator("upper", X, "torch.triu(x, -1)"),
    Operator("causal", 'x=normal("b, 9, 9")', "torch.softmax(torch.tril(x) * 2, -1)", '[{"b": 3}]'),
    Operator("positions", X, "x * torch.arange(x.shape[1])"),
    Operator("half_softmax_of_part", HEADS, "torch.softmax(q[..., 2:], -1)", EVEN),
    Operator(
        "norm_of_joined",
        'a=normal("rows, 5"), b=normal("rows, 8")',
        "F.normalize(torch.cat((a, b), 1))",
        '[{"rows": 7}]',
    ),
    Operator("sum_of_gated", HEADS, "(q.chunk(2, -1)[0] * q.chunk(2, -1)[1].sigmoid()).sum(-1)", EVEN),
    Operator(
        "running_norm",
        f'{IMAGE}, m=normal("8"), v=uniform("8", low=0.5, high=2.0), g=normal("8"), c=normal("8")',
        "F.relu(F.batch_norm(x, m, v, g, c))",
        IMAGES,
    ),
    Operator("quantised", X, "torch.round(x * 20).clamp(-128, 127).to(torch.int8), torch.trunc(x * 3)"),
    Operator(
        "binary_loss", 'x=normal("rows, cols"), y=uniform("rows, cols")', "F.binary_cross_entropy_with_logits(x, y)"
    ),
    Operator(
        "rare", 'x=uniform("rows, cols", low=-0.9, high=0.9)', "torch.atan(x) + x.sinh() - x.erfc() + F.softshrink(x)"
    ),
    Operator(
        "floors",
        'a=normal("rows, cols"), b=uniform("rows, cols", low=0.5, high=2.0)',
        'torch.div(a, b, rounding_mode="floor")',
    ),
)
"""With elements read at other places, and other operations of users' chains."""
OPERATORS += MOVING_OPERATORS

LOSSES = (
    *(
        Operator(
            f"smooth_loss_{name}", f'{X}, y=integers("rows", low=0, high="cols")', f"F.cross_entropy(x, y, {given})"
        )
        for name, given in (
            ("mean", "label_smoothing=0.1"),
            ("sum", 'label_smoothing=0.3, reduction="sum"'),
            ("none", 'label_smoothing=0.1, reduction="none"'),
            ("ignored", "ignore_index=2, label_smoothing=0.2"),
        )
    ),
    Operator("log_softmax_sums", X, "torch.log_softmax(x * 3 + 500, 1).sum(1)"),
)
"""Cross entropy with label smoothing, and the sum that it needs."""
OPERATORS += LOSSES


LONG_OPERATORS = (
    Operator(
        "long_layer_norm",
        'x=normal("rows, cols"), w=normal("cols", mean=1), b=normal("cols")',
        "F.layer_norm(x, w.shape, w, b)",
        LONG,
    ),
    Operator("long_softmax", X, "torch.softmax(x * 4, -1)", LONG),
    Operator("long_mean_and_peak", X, "x.mean(-1), x.amax(-1)", LONG),
    Operator(
        "long_smooth_loss",
        'x=normal("rows, cols"), y=integers("rows", low=0, high="cols")',
        "F.cross_entropy(x, y, label_smoothing=0.1)",
        LONG,
    ),
)
"""With rows so long that a sum one after the other rounds more often than the bounds of the tests allow."""


def write_tasks(folder: Path) -> Path:
    """One file with all operators, as a user would write it."""
    path = folder / "operators.py"
    head = "import torch\nimport torch.nn.functional as F\n"
    head += "from warpsmith import booleans, integers, normal, probabilities, task, uniform\n\n"
    path.write_text(head + "\n".join(operator.text for operator in (*OPERATORS, *LONG_OPERATORS)))
    return path
