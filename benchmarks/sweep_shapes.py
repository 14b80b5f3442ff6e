"""The tasks of `shape_sweep.py`: 40 products, 60 convolutions and 60 further tasks with sizes that no suite task has,
and 37 chains of operations that no suite has at all.

Every entry is the text of a task file. A product, a convolution, a pooling or a scan is written here; `sweep_chains.py`
has the chains; the others are tasks of the suites with another workload.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.sweep_chains import chains
from benchmarks.sweep_entries import CONVOLUTIONS, OTHERS, PRODUCTS, Entry, write_entry

from warpsmith.tasks.suites import resolve_task

_SPATIAL = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
_WORKLOADS = re.compile(r"workloads=\[.*?\],\n    precision", re.DOTALL)


def entries() -> tuple[Entry, ...]:
    """All entries, in the order in which they are measured."""
    return (*_products(), *_convolutions(), *_others(), *chains())


def _suite(title: str, group: str, **sizes: int) -> Entry:
    """A task of a suite with another workload."""
    file = resolve_task(title).partition("::")[0]
    workload = ", ".join(f'"{axis}": {size}' for axis, size in sizes.items())
    text, count = _WORKLOADS.subn(
        lambda _: f"workloads=[{{{workload}}}],\n    precision", Path(file).read_text(encoding="utf-8")
    )
    assert count == 1, f"{file} has no list of workloads before its precision"
    plain = title.rpartition("/")[2]
    name = "_".join([plain, *(str(size) for size in sizes.values())])
    shape = f"{plain} {', '.join(f'{axis} {size}' for axis, size in sizes.items())}"
    return Entry(name, group, shape, text, tuple(sizes.items()), title)


# --- products ---

_LAYOUTS = {  # declarations of the factors and the product
    "plain": ("m, k", "k, n", "a @ b"),
    "transposed_a": ("k, m", "k, n", "a.T @ b"),
    "transposed_b": ("m, k", "n, k", "a @ b.T"),
    "transposed_both": ("k, m", "n, k", "a.T @ b.T"),
    "batched": ("batch, m, k", "batch, k, n", "torch.bmm(a, b)"),
    "batched_transposed_b": ("batch, m, k", "batch, n, k", "torch.bmm(a, b.transpose(1, 2))"),
    "stack": ("batch, m, k", "k, n", "a @ b"),
    "linear": ("m, k", "n, k", "torch.nn.functional.linear(a, b, bias)"),
}
_SIZES: Sequence[tuple[str, tuple[int, ...]]] = (  # (batch,) m, k, n
    ("plain", (2050, 2050, 2050)),
    ("plain", (3000, 3000, 3000)),
    ("plain", (6144, 1536, 4608)),
    ("plain", (1009, 1013, 1019)),
    ("plain", (4093, 2053, 4099)),
    ("plain", (1023, 4097, 1025)),
    ("plain", (513, 511, 5119)),
    ("plain", (100_003, 65, 67)),
    ("plain", (67, 65, 100_003)),
    ("plain", (20_000, 512, 96)),
    ("plain", (5001, 7, 5003)),
    ("plain", (4097, 1, 4095)),
    ("plain", (96, 65_537, 130)),
    ("plain", (320, 20_011, 300)),
    ("plain", (1, 4099, 4001)),
    ("plain", (3, 8190, 8186)),
    ("plain", (17, 2047, 9001)),
    ("plain", (250, 250, 250)),
    ("transposed_a", (3001, 2999, 1537)),
    ("transposed_a", (1280, 5120, 1280)),
    ("transposed_a", (70, 40_001, 74)),
    ("transposed_b", (2999, 1537, 3001)),
    ("transposed_b", (5120, 1280, 3840)),
    ("transposed_b", (77, 4100, 11_007)),
    ("transposed_both", (1537, 3001, 2999)),
    ("transposed_both", (2560, 2560, 640)),
    ("batched", (48, 197, 65, 197)),
    ("batched", (7, 1025, 513, 769)),
    ("batched", (1000, 33, 35, 31)),
    ("batched_transposed_b", (96, 577, 64, 577)),
    ("stack", (13, 331, 1153, 2305)),
    ("stack", (3, 5, 4093, 4091)),
    ("linear", (6272, 768, 2304)),
    ("linear", (1001, 1531, 3067)),
)


def _products() -> Iterator[Entry]:
    for layout, sizes in _SIZES:
        first, second, result = _LAYOUTS[layout]
        tensors = {"a": f'normal("{first}")', "b": f'normal("{second}")'}
        if layout == "linear":
            tensors["bias"] = 'normal("n")'
        axes = ("batch", "m", "k", "n")[-len(sizes) :]
        name = f"product_{layout}_{'_'.join(map(str, sizes))}"
        shape = f"{layout.replace('_', ' ')} {' x '.join(map(str, sizes))}"
        yield write_entry(name, PRODUCTS, shape, tensors, result, dict(zip(axes, sizes, strict=True)))
    yield _suite("warpsmith-100/matvec", PRODUCTS, rows=12_289, cols=10_007)
    yield _suite("warpsmith-100/matvec", PRODUCTS, rows=300, cols=500_001)
    yield _suite("warpsmith-100/matmul_diagonal", PRODUCTS, n=10_007, m=3001)
    yield _suite("warpsmith-100/matmul_symmetric", PRODUCTS, n=3001)
    yield _suite("warpsmith-100/matmul_lower_triangular", PRODUCTS, n=3001)
    yield _suite("warpsmith-100/matmul_upper_triangular", PRODUCTS, n=2570)


# --- convolutions ---


def _convolution(
    name: str,
    batch: int,
    ci: int,
    co: int,
    extents: tuple[int, ...],
    kernel: tuple[int, ...],
    *,
    bias: bool = False,
    transposed: bool = False,
    groups: int = 1,
    **options: object,
) -> Entry:
    """One convolution; further options (stride, padding, dilation, output_padding) as PyTorch names them."""
    axes = len(extents)
    spatial = _SPATIAL[axes]
    outer, inner = (ci, co // groups) if transposed else (co, ci // groups)
    std = round(1 / math.sqrt(ci // groups * math.prod(kernel)), 4)
    tensors = {
        "x": f'normal("batch, {ci}, {", ".join(spatial)}")',
        "weight": f'normal("{", ".join(map(str, (outer, inner, *kernel)))}", std={std})',
    }
    if bias:
        tensors["bias"] = f'normal("{co}")'
    if groups > 1:
        options["groups"] = groups
    given = "".join(f", {option}={value!r}" for option, value in options.items())
    result = f"torch.nn.functional.conv{'_transpose' if transposed else ''}{axes}d({', '.join(tensors)}{given})"
    said = "".join(f", {option} {value}".replace("(", "").replace(")", "") for option, value in options.items())
    shape = f"{name.replace('_', ' ')}: {batch} x {ci} x {' x '.join(map(str, extents))} to {co}, kernel "
    shape += " x ".join(map(str, kernel)) + said + (", bias" if bias else "")
    sizes = {"batch": batch, **dict(zip(spatial, extents, strict=True))}
    return write_entry(f"conv_{name}", CONVOLUTIONS, shape, tensors, result, sizes)


def _convolutions() -> Iterator[Entry]:
    c = _convolution
    # ResNet-50
    yield c("resnet_stem", 32, 3, 64, (224, 224), (7, 7), stride=2, padding=3)
    yield c("resnet_1x1_64_64", 32, 64, 64, (56, 56), (1, 1))
    yield c("resnet_3x3_64", 32, 64, 64, (56, 56), (3, 3), padding=1)
    yield c("resnet_1x1_64_256", 32, 64, 256, (56, 56), (1, 1))
    yield c("resnet_1x1_256_64", 32, 256, 64, (56, 56), (1, 1))
    yield c("resnet_1x1_256_128", 32, 256, 128, (56, 56), (1, 1))
    yield c("resnet_3x3_128_strided", 32, 128, 128, (56, 56), (3, 3), stride=2, padding=1)
    yield c("resnet_3x3_128", 32, 128, 128, (28, 28), (3, 3), padding=1)
    yield c("resnet_down_256_512", 32, 256, 512, (56, 56), (1, 1), stride=2)
    yield c("resnet_1x1_512_128", 32, 512, 128, (28, 28), (1, 1))
    yield c("resnet_3x3_256", 32, 256, 256, (14, 14), (3, 3), padding=1)
    yield c("resnet_1x1_1024_256", 32, 1024, 256, (14, 14), (1, 1))
    yield c("resnet_3x3_512_strided", 32, 512, 512, (14, 14), (3, 3), stride=2, padding=1)
    yield c("resnet_3x3_512", 32, 512, 512, (7, 7), (3, 3), padding=1)
    yield c("resnet_1x1_512_2048", 32, 512, 2048, (7, 7), (1, 1))
    yield c("resnet_3x3_64_one_image", 1, 64, 64, (56, 56), (3, 3), padding=1)
    # MobileNet
    yield c("mobile_stem", 64, 3, 32, (224, 224), (3, 3), stride=2, padding=1)
    yield c("mobile_depthwise_32", 64, 32, 32, (112, 112), (3, 3), padding=1, groups=32)
    yield c("mobile_depthwise_64_strided", 64, 64, 64, (112, 112), (3, 3), stride=2, padding=1, groups=64)
    yield c("mobile_depthwise_512", 64, 512, 512, (14, 14), (3, 3), padding=1, groups=512)
    yield c("mobile_depthwise_240_5x5", 64, 240, 240, (28, 28), (5, 5), padding=2, groups=240)
    yield c("mobile_depthwise_1024", 64, 1024, 1024, (7, 7), (3, 3), padding=1, groups=1024)
    yield c("mobile_pointwise_32_64", 64, 32, 64, (112, 112), (1, 1))
    yield c("mobile_pointwise_96_24", 64, 96, 24, (56, 56), (1, 1))
    yield c("mobile_pointwise_512", 64, 512, 512, (14, 14), (1, 1), bias=True)
    # U-Net
    yield c("unet_first", 4, 1, 64, (572, 572), (3, 3))
    yield c("unet_3x3_64", 4, 64, 64, (256, 256), (3, 3), padding=1, bias=True)
    yield c("unet_3x3_256_128", 4, 256, 128, (128, 128), (3, 3), padding=1)
    yield c("unet_3x3_512", 4, 512, 512, (32, 32), (3, 3), padding=1)
    yield c("unet_up_1024_512", 4, 1024, 512, (16, 16), (2, 2), transposed=True, bias=True, stride=2)
    yield c("unet_up_256_128", 4, 256, 128, (64, 64), (2, 2), transposed=True, stride=2)
    yield c("unet_up_128_64", 4, 128, 64, (128, 128), (2, 2), transposed=True, stride=2)
    yield c("unet_last", 4, 64, 2, (388, 388), (1, 1), bias=True)
    # WaveNet
    yield c("wavenet_first", 8, 1, 32, (64_001,), (2,), padding=1)
    yield c("wavenet_dilation_1", 8, 32, 64, (64_000,), (2,), padding=1)
    yield c("wavenet_dilation_16", 8, 64, 128, (32_000,), (2,), padding=16, dilation=16)
    yield c("wavenet_dilation_512", 8, 64, 64, (32_000,), (2,), padding=512, dilation=512)
    yield c("wavenet_1x1_64_256", 8, 64, 256, (16_000,), (1,), bias=True)
    yield c("wavenet_odd_dilation", 3, 48, 80, (16_381,), (3,), padding=54, dilation=27)
    # A 3-d video model
    yield c("video_stem", 2, 3, 64, (16, 112, 112), (3, 7, 7), stride=(1, 2, 2), padding=(1, 3, 3))
    yield c("video_3x3x3_64", 2, 64, 64, (16, 56, 56), (3, 3, 3), padding=1)
    yield c("video_1x3x3_64", 2, 64, 144, (16, 56, 56), (1, 3, 3), padding=(0, 1, 1))
    yield c("video_3x1x1_144", 2, 144, 64, (16, 56, 56), (3, 1, 1), padding=(1, 0, 0))
    yield c("video_3x3x3_128_strided", 2, 64, 128, (16, 56, 56), (3, 3, 3), stride=2, padding=1)
    yield c("video_3x3x3_256", 2, 256, 256, (4, 14, 14), (3, 3, 3), padding=1)
    yield c("video_1x1x1_down", 2, 128, 256, (8, 28, 28), (1, 1, 1), stride=2)
    # Odd ones
    yield c("groups_4", 16, 64, 128, (40, 40), (3, 3), padding=1, groups=4)
    yield c("groups_32_resnext", 16, 256, 256, (28, 28), (3, 3), padding=1, groups=32)
    yield c("groups_3_odd", 5, 33, 21, (37, 41), (3, 5), padding=(1, 2), groups=3, bias=True)
    yield c("multiplied_depthwise", 8, 24, 72, (50, 50), (3, 3), padding=1, groups=24)
    yield c("oblong_1x15", 4, 40, 56, (31, 301), (1, 15), padding=(0, 7))
    yield c("oblong_11x2_dilated", 3, 19, 23, (97, 61), (11, 2), padding=(10, 1), dilation=(2, 3))
    yield c("large_stride", 4, 16, 96, (224, 224), (16, 16), stride=16)
    yield c("one_channel_to_one", 2, 1, 1, (333, 335), (5, 5), padding=2)
    yield c(
        "transposed_output_padding", 4, 96, 48, (33, 35), (3, 3), transposed=True, stride=2, padding=1, output_padding=1
    )
    yield c(
        "transposed_groups_dilated", 3, 30, 50, (29, 31), (3, 4), transposed=True, groups=5, stride=(3, 2), dilation=2
    )
    yield c("transposed_1d_upsampler", 8, 128, 64, (8001,), (16,), transposed=True, stride=8, padding=4)
    yield c("transposed_3d_up", 2, 64, 32, (8, 28, 28), (2, 2, 2), transposed=True, stride=2)
    yield c("transposed_stride_11", 2, 40, 24, (57,), (13,), transposed=True, stride=11, output_padding=3)
    yield c("grouped_1d", 6, 60, 90, (5003,), (9,), padding=4, stride=2, groups=6)


# --- others ---


def _pooling(name: str, extents: tuple[int, ...], planes: tuple[int, int], call: str) -> Entry:
    axes = len(extents)
    spatial = _SPATIAL[axes]
    return write_entry(
        f"pool_{name}",
        OTHERS,
        f"{call} of {' x '.join(map(str, (*planes, *extents)))}",
        {"x": f'normal("batch, channels, {", ".join(spatial)}")'},
        f"torch.nn.functional.{call.replace('(', '(x, ')}",
        {"batch": planes[0], "channels": planes[1], **dict(zip(spatial, extents, strict=True))},
    )


def _scan(name: str, rows: int, cols: int, result: str, **other: str) -> Entry:
    tensors = {"x": 'normal("rows, cols")', **other}
    shape = f"{name.replace('_', ' ')} {rows} x {cols}"
    return write_entry(f"scan_{name}_{rows}_{cols}", OTHERS, shape, tensors, result, {"rows": rows, "cols": cols})


def _others() -> Iterator[Entry]:
    p = _pooling
    yield p("resnet", (112, 112), (32, 64), "max_pool2d(3, stride=2, padding=1)")
    yield p("vgg", (224, 224), (16, 64), "max_pool2d(2)")
    yield p("avg_7x7", (56, 56), (64, 255), "avg_pool2d(7)")
    yield p("avg_3x3_odd", (191, 193), (8, 33), "avg_pool2d(3, stride=1, padding=1)")
    yield p("avg_strided", (300, 301), (8, 32), "avg_pool2d(5, stride=3, padding=2)")
    yield p("max_5x5", (65, 67), (16, 128), "max_pool2d(5, stride=1, padding=2)")
    yield p("max_1d", (30_001,), (16, 65), "max_pool1d(5, stride=1, padding=2)")
    yield p("avg_1d_wide", (20_011,), (16, 64), "avg_pool1d(25, stride=1, padding=12)")
    yield p("max_1d_halves", (32_000,), (16, 128), "max_pool1d(2)")
    yield p("max_3d", (31, 57, 55), (4, 32), "max_pool3d(3, stride=2, padding=1)")
    yield p("avg_3d", (17, 96, 100), (4, 24), "avg_pool3d(3, stride=2, padding=1)")
    yield p("max_3d_halves", (16, 56, 56), (4, 64), "max_pool3d(2)")
    exclusive = "torch.nn.functional.pad(x, (1, 0)).cumsum(dim=1)[:, :-1]"
    yield _scan("cumsum", 3, 10_000_001, "x.cumsum(dim=1)")
    yield _scan("cumsum", 1_000_003, 17, "x.cumsum(dim=1)")
    yield _scan("cumsum", 5000, 4999, "x.cumsum(dim=-1)")
    yield _scan("cumsum", 257, 65_536, "x.cumsum(dim=1)")
    yield _scan("cumsum_reverse", 4001, 5003, "x.flip(1).cumsum(dim=1).flip(1)")
    yield _scan("cumsum_reverse", 100_000, 100, "x.flip(1).cumsum(dim=1).flip(1)")
    yield _scan("cumsum_exclusive", 3001, 8193, exclusive)
    yield _scan("cumsum_exclusive", 90, 250_007, exclusive)
    yield _scan("cumsum_masked", 2047, 12_289, "(x * mask).cumsum(dim=1)", mask='booleans("rows, cols")')
    yield _scan("cumprod", 6007, 3001, "x.cumprod(dim=1)", x='uniform("rows, cols", low=0.998, high=1.002)')
    yield _suite("warpsmith-100/softmax", OTHERS, rows=20_011, cols=1000)
    yield _suite("warpsmith-100/softmax", OTHERS, rows=37, cols=300_007)
    yield _suite("warpsmith-100/softmax", OTHERS, rows=1_000_003, cols=19)
    yield _suite("warpsmith-100/log_softmax", OTHERS, rows=5003, cols=10_001)
    yield _suite("warpsmith-100/layer_norm", OTHERS, batch=3000, channels=7, height=11, width=13)
    yield _suite("warpsmith-100/rms_norm", OTHERS, batch=9, channels=96, height=65, width=67)
    yield _suite("warpsmith-100/batch_norm", OTHERS, batch=33, channels=100, height=57, width=59)
    yield _suite("warpsmith-100/group_norm", OTHERS, batch=17, channels=192, height=41, width=43)
    yield _suite("warpsmith-100/instance_norm", OTHERS, batch=15, channels=77, height=99, width=101)
    yield _suite("warpsmith-100/l1_norm", OTHERS, rows=3001, cols=9973)
    yield _suite("warpsmith-100/l2_norm", OTHERS, rows=70_001, cols=333)
    yield _suite("warpsmith-100/frobenius_norm", OTHERS, batch=7, channels=31, height=127, width=129)
    yield _suite("warpsmith-100/gelu", OTHERS, rows=4099, cols=8191)
    yield _suite("warpsmith-100/gelu_tanh", OTHERS, rows=6007, cols=5001)
    yield _suite("warpsmith-100/softplus", OTHERS, rows=999, cols=40_001)
    yield _suite("warpsmith-100/elu", OTHERS, rows=1, cols=30_000_001)
    yield _suite("warpsmith-100/tanh", OTHERS, rows=12_001, cols=3000)
    yield _suite("warpsmith-100/argmax", OTHERS, batch=21, rows=1001, cols=999)
    yield _suite("warpsmith-100/max_reduction", OTHERS, batch=1, rows=20_003, cols=1003)
    yield _suite("warpsmith-100/sum_reduction", OTHERS, batch=301, rows=257, cols=259)
    yield _suite("warpsmith-100/mean_reduction", OTHERS, batch=5, rows=50_021, cols=65)
    yield _suite("warpsmith-100/cross_entropy", OTHERS, rows=10_007, classes=1003)
    yield _suite("warpsmith-100/mse_loss", OTHERS, rows=3001, cols=7001)
    yield _suite("warpsmith-100/kl_div", OTHERS, rows=4001, cols=3003)
    yield _suite("warpsmith-100/hinge_loss", OTHERS, rows=6001, cols=4003)
    yield _suite("warpsmith-100/triplet_margin", OTHERS, rows=9001, cols=513)
    yield _suite("warpsmith-100/attention", OTHERS, batch=3, heads=12, length=1027, width=64)
    yield _suite("warpsmith-fused/adam_step", OTHERS, n=25_000_003)
    yield _suite("warpsmith-fused/bias_gelu", OTHERS, rows=5001, cols=3073)
    yield _suite("warpsmith-fused/residual_rms_norm", OTHERS, rows=3001, cols=5119)
    yield _suite("warpsmith-fused/group_norm_silu", OTHERS, batch=5, channels=224, height=47, width=45)
    yield _suite("warpsmith-fused/quantize_dequantize", OTHERS, rows=3001, cols=6001)
    yield _suite("warpsmith-fused/rotary_embedding", OTHERS, batch=3, heads=20, length=1537, width=80, pairs=40)
    yield _suite("warpsmith-fused/softmax_cross_entropy", OTHERS, rows=2003, classes=50_257)
    yield _suite("warpsmith-fused/top_k_softmax", OTHERS, rows=20_001, experts=96)
    yield _suite("warpsmith-fused/embedding_position", OTHERS, batch=9, length=511, vocabulary=10_007, width=770)
    yield _suite("warpsmith-fused/layer_norm_linear", OTHERS, rows=2049, cols=1280, width=2563)
    yield _suite("warpsmith-fused/swiglu", OTHERS, rows=1001, cols=2050, width=5461)
