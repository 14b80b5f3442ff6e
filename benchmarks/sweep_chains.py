"""The chains of `shape_sweep.py`: 37 tasks that users write and that no suite has, at sizes of real models."""

from __future__ import annotations

import math
from collections.abc import Iterator

from benchmarks.sweep_entries import CHAINS, Entry, write_entry


def _weight(*dims: int) -> str:
    """Weights whose products keep the size of their input."""
    return f'normal("{", ".join(map(str, dims))}", std={round(1 / math.sqrt(math.prod(dims[1:])), 4)})'


def _statistics(name: str, channels: int) -> dict[str, str]:
    """The running statistics, the weight and the bias of a batch normalisation."""
    each = f'normal("{channels}")'
    variance = f'uniform("{channels}", low=0.5, high=1.5)'
    return {f"{name}_mean": each, f"{name}_variance": variance, f"{name}_gain": each, f"{name}_shift": each}


def _normalised(name: str, value: str) -> str:
    return f"F.batch_norm({value}, {name}_mean, {name}_variance, {name}_gain, {name}_shift)"


def _chain(name: str, said: str, tensors: dict[str, str], *lines: str, **sizes: int) -> Entry:
    """A chain: statements, of which the last is the result."""
    *before, result = lines
    return write_entry(f"chain_{name}", CHAINS, said, tensors, result, sizes, before)


def _image(*sizes: int) -> str:
    return f'normal("batch, {", ".join(map(str, sizes))}")'


def chains() -> Iterator[Entry]:
    """All chains, those that begin with a convolution first."""
    yield from _convolution_chains()
    yield from _product_chains()
    yield from _row_chains()


def _convolution_chains() -> Iterator[Entry]:
    c, n = _chain, _normalised
    # ResNet, batch normalisation in evaluation mode
    yield c(
        "resnet_stem",
        "ResNet: convolution 7 x 7, batch norm, ReLU, pooling: 32 x 3 x 224 x 224 to 64",
        {"x": _image(3, 224, 224), "w": _weight(64, 3, 7, 7), **_statistics("a", 64)},
        f"y = F.relu({n('a', 'F.conv2d(x, w, stride=2, padding=3)')})",
        "F.max_pool2d(y, 3, stride=2, padding=1)",
        batch=32,
    )
    yield c(
        "resnet_conv_norm_relu",
        "ResNet: convolution 3 x 3, batch norm, ReLU: 32 x 512 x 7 x 7",
        {"x": _image(512, 7, 7), "w": _weight(512, 512, 3, 3), **_statistics("a", 512)},
        f"F.relu({n('a', 'F.conv2d(x, w, padding=1)')})",
        batch=32,
    )
    yield c(
        "resnet_block_end",
        "ResNet: convolution 3 x 3, batch norm, residual, ReLU: 32 x 64 x 56 x 56",
        {"x": _image(64, 56, 56), "w": _weight(64, 64, 3, 3), "r": _image(64, 56, 56), **_statistics("a", 64)},
        f"F.relu({n('a', 'F.conv2d(x, w, padding=1)')} + r)",
        batch=32,
    )
    yield c(
        "resnet_bottleneck_end",
        "ResNet: convolution 1 x 1, batch norm, residual, ReLU: 32 x 64 x 56 x 56 to 256",
        {"x": _image(64, 56, 56), "w": _weight(256, 64, 1, 1), "r": _image(256, 56, 56), **_statistics("a", 256)},
        f"F.relu({n('a', 'F.conv2d(x, w)')} + r)",
        batch=32,
    )
    yield c(
        "resnet_basic_block",
        "ResNet: a basic block of two convolutions 3 x 3: 32 x 128 x 28 x 28",
        {
            "x": _image(128, 28, 28),
            "v": _weight(128, 128, 3, 3),
            "w": _weight(128, 128, 3, 3),
            **_statistics("a", 128),
            **_statistics("b", 128),
        },
        f"y = F.relu({n('a', 'F.conv2d(x, v, padding=1)')})",
        f"F.relu({n('b', 'F.conv2d(y, w, padding=1)')} + x)",
        batch=32,
    )
    # MobileNet
    yield c(
        "mobile_depthwise",
        "MobileNet: depthwise convolution 3 x 3, batch norm, ReLU6: 64 x 144 x 56 x 56",
        {"x": _image(144, 56, 56), "w": _weight(144, 1, 3, 3), **_statistics("a", 144)},
        f"F.relu6({n('a', 'F.conv2d(x, w, padding=1, groups=144)')})",
        batch=64,
    )
    yield c(
        "mobile_projection",
        "MobileNet: convolution 1 x 1, batch norm, residual: 64 x 144 x 56 x 56 to 24",
        {"x": _image(144, 56, 56), "w": _weight(24, 144, 1, 1), "r": _image(24, 56, 56), **_statistics("a", 24)},
        f"{n('a', 'F.conv2d(x, w)')} + r",
        batch=64,
    )
    yield c(
        "mobile_hardswish",
        "MobileNet: convolution 1 x 1, batch norm, hardswish: 64 x 160 x 7 x 7 to 960",
        {"x": _image(160, 7, 7), "w": _weight(960, 160, 1, 1), **_statistics("a", 960)},
        f"F.hardswish({n('a', 'F.conv2d(x, w)')})",
        batch=64,
    )
    yield c(
        "squeeze_and_excite",
        "MobileNet: squeeze and excite: 64 x 96 x 28 x 28 by 24",
        {
            "x": _image(96, 28, 28),
            "v": _weight(24, 96),
            "a": 'normal("24")',
            "w": _weight(96, 24),
            "b": 'normal("96")',
        },
        "y = F.relu(F.linear(x.mean((2, 3)), v, a))",
        "x * torch.sigmoid(F.linear(y, w, b))[:, :, None, None]",
        batch=64,
    )
    # U-Net, generators, diffusion
    yield c(
        "unet_double_convolution",
        "U-Net: convolution 3 x 3, batch norm, ReLU, twice: 4 x 64 x 128 x 128 to 128",
        {
            "x": _image(64, 128, 128),
            "v": _weight(128, 64, 3, 3),
            "w": _weight(128, 128, 3, 3),
            **_statistics("a", 128),
            **_statistics("b", 128),
        },
        f"y = F.relu({n('a', 'F.conv2d(x, v, padding=1)')})",
        f"F.relu({n('b', 'F.conv2d(y, w, padding=1)')})",
        batch=4,
    )
    yield c(
        "generator_end",
        "DCGAN: transposed convolution 4 x 4, bias, tanh: 64 x 64 x 32 x 32 to 3",
        {"x": _image(64, 32, 32), "w": _weight(64, 3, 4, 4), "bias": 'normal("3")'},
        "torch.tanh(F.conv_transpose2d(x, w, bias, stride=2, padding=1))",
        batch=64,
    )
    yield c(
        "generator_middle",
        "DCGAN: transposed convolution 4 x 4, batch norm, ReLU: 64 x 256 x 8 x 8 to 128",
        {"x": _image(256, 8, 8), "w": _weight(256, 128, 4, 4), **_statistics("a", 128)},
        f"F.relu({n('a', 'F.conv_transpose2d(x, w, stride=2, padding=1)')})",
        batch=64,
    )
    yield c(
        "diffusion_conv_norm_silu",
        "Diffusion: convolution 3 x 3, group norm, SiLU: 4 x 320 x 64 x 64",
        {"x": _image(320, 64, 64), "w": _weight(320, 320, 3, 3), "gain": 'normal("320")', "shift": 'normal("320")'},
        "F.silu(F.group_norm(F.conv2d(x, w, padding=1), 32, gain, shift))",
        batch=4,
    )
    yield c(
        "diffusion_norm_silu_conv",
        "Diffusion: group norm, SiLU, convolution 3 x 3, residual: 4 x 320 x 32 x 32",
        {
            "x": _image(320, 32, 32),
            "w": _weight(320, 320, 3, 3),
            "bias": 'normal("320")',
            "gain": 'normal("320")',
            "shift": 'normal("320")',
        },
        "x + F.conv2d(F.silu(F.group_norm(x, 32, gain, shift)), w, bias, padding=1)",
        batch=4,
    )
    yield c(
        "vgg_conv_relu_pool",
        "VGG: convolution 3 x 3, bias, ReLU, pooling: 16 x 128 x 112 x 112",
        {"x": _image(128, 112, 112), "w": _weight(128, 128, 3, 3), "bias": 'normal("128")'},
        "F.max_pool2d(F.relu(F.conv2d(x, w, bias, padding=1)), 2)",
        batch=16,
    )
    yield c(
        "video_conv_norm_mish",
        "Video: convolution 3 x 3 x 3, group norm, mish: 2 x 32 x 16 x 56 x 56 to 64",
        {
            "x": _image(32, 16, 56, 56),
            "w": _weight(64, 32, 3, 3, 3),
            "gain": 'normal("64")',
            "shift": 'normal("64")',
        },
        "F.mish(F.group_norm(F.conv3d(x, w, padding=1), 8, gain, shift))",
        batch=2,
    )
    yield c(
        "wavenet_gate",
        "WaveNet: two dilated convolutions, tanh times sigmoid: 8 x 64 x 16000",
        {"x": _image(64, 16_000), "v": _weight(64, 64, 2), "w": _weight(64, 64, 2)},
        "y = torch.tanh(F.conv1d(x, v, padding=8, dilation=16))",
        "y * torch.sigmoid(F.conv1d(x, w, padding=8, dilation=16))",
        batch=8,
    )


def _rows_of(cols: int) -> str:
    return f'normal("rows, {cols}")'


def _product_chains() -> Iterator[Entry]:
    c = _chain
    yield c(
        "vit_linear_gelu",
        "ViT: linear, GELU: 12608 x 768 to 3072",
        {"x": _rows_of(768), "w": _weight(3072, 768), "bias": 'normal("3072")'},
        "F.gelu(F.linear(x, w, bias))",
        rows=12_608,
    )
    yield c(
        "vit_mlp",
        "ViT: linear, GELU, linear, residual: 12608 x 768 by 3072",
        {
            "x": _rows_of(768),
            "v": _weight(3072, 768),
            "a": 'normal("3072")',
            "w": _weight(768, 3072),
            "b": 'normal("768")',
        },
        "x + F.linear(F.gelu(F.linear(x, v, a)), w, b)",
        rows=12_608,
    )
    yield c(
        "llm_linear_silu",
        "LLM: linear, SiLU: 4096 x 2048 to 5632",
        {"x": _rows_of(2048), "w": _weight(5632, 2048)},
        "F.silu(F.linear(x, w))",
        rows=4096,
    )
    yield c(
        "llm_gated_mlp",
        "LLM: gated MLP, projection down, residual: 2048 x 2048 by 5632",
        {
            "x": _rows_of(2048),
            "gate": _weight(5632, 2048),
            "up": _weight(5632, 2048),
            "down": _weight(2048, 5632),
        },
        "x + F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)",
        rows=2048,
    )
    yield c(
        "bert_output",
        "BERT: linear, residual, layer norm: 8192 x 3072 to 768",
        {
            "x": _rows_of(3072),
            "w": _weight(768, 3072),
            "bias": 'normal("768")',
            "r": _rows_of(768),
            "gain": 'normal("768")',
            "shift": 'normal("768")',
        },
        "F.layer_norm(F.linear(x, w, bias) + r, (768,), gain, shift)",
        rows=8192,
    )
    yield c(
        "vit_norm_linear",
        "ViT: layer norm, linear: 64 x 197 x 384 to 1152",
        {
            "x": 'normal("batch, 197, 384")',
            "w": _weight(1152, 384),
            "bias": 'normal("1152")',
            "gain": 'normal("384")',
            "shift": 'normal("384")',
        },
        "F.linear(F.layer_norm(x, (384,), gain, shift), w, bias)",
        batch=64,
    )
    yield c(
        "llm_norm_linear",
        "LLM: RMS norm, linear: 4096 x 2048 to 2560",
        {"x": _rows_of(2048), "w": _weight(2560, 2048), "gain": 'normal("2048")'},
        "y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * gain",
        "F.linear(y, w)",
        rows=4096,
    )
    yield c(
        "linear_layer_norm",
        "Linear, layer norm: 6000 x 1024 to 1536",
        {
            "x": _rows_of(1024),
            "w": _weight(1536, 1024),
            "bias": 'normal("1536")',
            "gain": 'normal("1536")',
            "shift": 'normal("1536")',
        },
        "F.layer_norm(F.linear(x, w, bias), (1536,), gain, shift)",
        rows=6000,
    )
    yield c(
        "classifier_softmax",
        "Classifier: linear, softmax: 8192 x 1024 to 1000",
        {"x": _rows_of(1024), "w": _weight(1000, 1024), "bias": 'normal("1000")'},
        "torch.softmax(F.linear(x, w, bias), -1)",
        rows=8192,
    )
    yield c(
        "llm_head",
        "LLM: linear, log-softmax: 1024 x 1024 to 32000",
        {"x": _rows_of(1024), "w": _weight(32_000, 1024)},
        "torch.log_softmax(F.linear(x, w), -1)",
        rows=1024,
    )
    yield c(
        "product_log_sum_exp",
        "Product, log-sum-exp, leaky ReLU, GELU: 2048 x 4096 x 3072",
        {"x": _rows_of(4096), "w": _weight(3072, 4096), "bias": 'normal("3072")'},
        "y = torch.logsumexp(F.linear(x, w, bias), 1, keepdim=True)",
        "F.gelu(F.leaky_relu(y, 0.01))",
        rows=2048,
    )
    yield c(
        "product_clamp_mish",
        "Product, scale, clamp, log-sum-exp, mish: 3000 x 2048 x 2500",
        {"x": _rows_of(2048), "w": _weight(2500, 2048)},
        "y = torch.clamp(F.linear(x, w) * 2.0, -5.0, 5.0)",
        "z = torch.logsumexp(y + y, 1, keepdim=True)",
        "z * F.mish(z)",
        rows=3000,
    )
    yield c(
        "linear_group_norm_hardtanh",
        "Linear, group norm, hardtanh: 2048 x 1024 to 4096",
        {
            "x": _rows_of(1024),
            "w": _weight(4096, 1024),
            "bias": 'normal("4096")',
            "gain": 'normal("4096")',
            "shift": 'normal("4096")',
        },
        "F.hardtanh(F.group_norm(F.linear(x, w, bias), 16, gain, shift), -2.0, 2.0)",
        rows=2048,
    )
    heads = 'normal("batch, 12, 577, 64")'
    yield c(
        "attention_residual",
        "Attention, residual: 8 x 12 x 577 x 64",
        dict.fromkeys("xqkv", heads),
        "x + F.scaled_dot_product_attention(q, k, v)",
        batch=8,
    )
    yield c(
        "attention_scores",
        "Scores of attention: product, scale, softmax: 96 x 577 x 577 x 64",
        {"q": 'normal("batch, 577, 64")', "k": 'normal("batch, 577, 64")'},
        "torch.softmax(q @ k.transpose(1, 2) * 0.125, -1)",
        batch=96,
    )
    yield c(
        "attention_block",
        "ViT: layer norm, projections, attention, projection, residual: 16 x 197 x 384, 6 heads",
        {
            "x": 'normal("batch, 197, 384")',
            **{name: _weight(384, 384) for name in ("wq", "wk", "wv", "wo")},
            "gain": 'normal("384")',
            "shift": 'normal("384")',
        },
        "h = F.layer_norm(x, (384,), gain, shift)",
        "q, k, v = (F.linear(h, w).view(-1, 197, 6, 64).transpose(1, 2) for w in (wq, wk, wv))",
        "y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, 197, 384)",
        "x + F.linear(y, wo)",
        batch=16,
    )


def _row_chains() -> Iterator[Entry]:
    c = _chain
    # Places of a top-k after a softmax are not asked for: where two probabilities round to neighbours, both are right.
    yield c(
        "router",
        "Mixture of experts: softmax, 8 of 64 experts, renormalised: 16384 x 64",
        {"x": _rows_of(64)},
        "v, i = torch.topk(torch.softmax(x, -1), 8, dim=-1)",
        "v / v.sum(-1, keepdim=True)",
        rows=16_384,
    )
    yield c(
        "top_50_of_words",
        "Sampling: the 50 largest logits with their places: 4096 x 32000",
        {"x": _rows_of(32_000)},
        "torch.topk(x, 50, dim=-1)",
        rows=4096,
    )
    yield c(
        "sum_over_time",
        "Recurrence: running sum over the middle axis: 16 x 2048 x 1024",
        {"x": 'normal("batch, 2048, 1024")'},
        "torch.cumsum(x, dim=1)",
        batch=16,
    )
    yield c(
        "smooth_cross_entropy",
        "Loss: cross entropy with label smoothing: 8192 x 32000",
        {"x": _rows_of(32_000), "labels": 'integers("rows", low=0, high=32000)'},
        "F.cross_entropy(x, labels, label_smoothing=0.1)",
        rows=8192,
    )
