# mypy: ignore-errors
"""Chains of operations that users write, as one file of tasks: around products and convolutions, and of rows."""

import torch
import torch.nn.functional as F

from warpsmith import booleans, integers, normal, task, uniform


def conv2(fn):
    return task(
        x=normal("16, 8, 64, 64"),
        w=normal("32, 8, 3, 3", std=0.1),
        b=normal("32"),
        p=normal("32, 1, 1"),
        workloads=[{}],
    )(fn)


def convt2(fn):
    return task(
        x=normal("16, 32, 32, 32"),
        w=normal("32, 16, 4, 4", std=0.1),
        b=normal("16"),
        p=normal("16, 1, 1"),
        workloads=[{}],
    )(fn)


def conv3(fn):
    return task(
        x=normal("8, 8, 16, 32, 32"),
        w=normal("32, 8, 3, 3, 3", std=0.1),
        b=normal("32"),
        p=normal("32, 1, 1, 1"),
        workloads=[{}],
    )(fn)


def convt3(fn):
    return task(
        x=normal("8, 32, 8, 16, 16"),
        w=normal("32, 16, 3, 3, 3", std=0.1),
        b=normal("16"),
        p=normal("16, 1, 1, 1"),
        workloads=[{}],
    )(fn)


def gemm(fn):
    return task(
        x=normal("1024, 4096"),
        w=normal("4096, 4096", std=0.02),
        b=normal("4096"),
        p=normal("4096"),
        g=normal("4096"),
        workloads=[{}],
    )(fn)


def c2(x, w, b):
    return F.conv2d(x, w, b)


def t2(x, w, b):
    return F.conv_transpose2d(x, w, b, stride=2, padding=1)


def c3(x, w, b):
    return F.conv3d(x, w, b)


def t3(x, w, b):
    return F.conv_transpose3d(x, w, b, stride=2, padding=1, output_padding=1)


@conv2
def conv_relu_bias(x, w, b, p):
    return F.relu(c2(x, w, b)) + p


@convt2
def transposed_clamps(x, w, b, p):
    return torch.clamp(torch.clamp(t2(x, w, b) + p, 0, 1) * 2, 0, 1) / 2


@convt3
def transposed_3d_norm_pool_gelu(x, w, b, p):
    return F.gelu(F.avg_pool3d(F.layer_norm(t3(x, w, b) + 1.0, (32,)), 2))


@conv2
def conv_mish_twice(x, w, b, p):
    return F.mish(F.mish(c2(x, w, b)))


@convt2
def transposed_minus_tanh(x, w, b, p):
    return torch.tanh(t2(x, w, b) - p)


@conv3
def conv_3d_softmax_pools(x, w, b, p):
    return F.max_pool3d(F.max_pool3d(torch.softmax(c3(x, w, b), 1), 2), 2)


@conv3
def conv_3d_activations_bias(x, w, b, p):
    return torch.sigmoid(F.gelu(F.leaky_relu(F.relu(c3(x, w, b))))) + p


@conv3
def conv_3d_pools_sum(x, w, b, p):
    return (F.adaptive_avg_pool3d(F.max_pool3d(c3(x, w, b) / 2, 2), 1) + p).sum(1)


@gemm
def gemm_shift_scale_relu(x, w, b, p, g):
    return F.relu((F.linear(x, w, b) - 2) * 1.5)


@convt2
def transposed_pool_hardtanh_mean(x, w, b, p):
    return torch.tanh(F.hardtanh(F.max_pool2d(t2(x, w, b), 2)).mean((2, 3), keepdim=True))


@convt2
def transposed_norms_pool(x, w, b, p):
    return F.group_norm(F.max_pool2d(torch.tanh(F.batch_norm(t2(x, w, b), None, None, training=True)), 2), 4)


@gemm
def gemm_scale_leaky(x, w, b, p, g):
    return F.leaky_relu(F.linear(x, w, b) * 2, 0.1)


@convt3
def transposed_3d_mean_softmax(x, w, b, p):
    return torch.tanh(torch.softmax(t3(x, w, b).mean(2, keepdim=True) + p, 1)) * 2


@gemm
def gemm_sum(x, w, b, p, g):
    return (x @ w.T / 2).sum(1, keepdim=True) * 1.5


@convt3
def transposed_3d_norm_centred(x, w, b, p):
    y = F.batch_norm(t3(x, w, b), None, None, training=True)
    return y - y.mean((2, 3, 4), keepdim=True)


@convt2
def transposed_mish_hardtanh(x, w, b, p):
    return F.hardtanh(F.mish(t2(x, w, b)) + 0.5) * 2


@conv2
def conv_instance_norm(x, w, b, p):
    return F.instance_norm(c2(x, w, b)) / 2


@gemm
def gemm_sum_max_logsumexp(x, w, b, p, g):
    y = F.linear(x, w, b).sum(1, keepdim=True).max(1, keepdim=True)[0]
    return torch.logsumexp(y.mean(1, keepdim=True), 1, keepdim=True)


@convt2
def transposed_gelu_group_norm(x, w, b, p):
    return F.group_norm(F.gelu(t2(x, w, b)), 4)


@convt3
def transposed_3d_residuals(x, w, b, p):
    y = t3(x, w, b)
    o = y.clone().detach()
    return ((y + p) + o) * o + o


@conv2
def conv_sigmoid_group_norm(x, w, b, p):
    return F.group_norm(torch.sigmoid((c2(x, w, b) + p) * p), 8)


@gemm
def gemm_logsumexp_mish(x, w, b, p, g):
    y = F.linear(x, w, b) * 2
    y = torch.clamp(y + y, -1, 1)
    y = torch.logsumexp(y, 1, keepdim=True)
    return y * F.mish(y)


@conv3
def conv_3d_group_norm_mean(x, w, b, p):
    return F.group_norm(c3(x, w, b), 8).mean((1, 2, 3, 4))


@conv3
def conv_3d_min_softmax(x, w, b, p):
    return torch.softmax(c3(x, w, b).min(2)[0], 1)


@conv2
def conv_min_tanh(x, w, b, p):
    return torch.tanh(torch.tanh(c2(x, w, b).min(1, keepdim=True)[0]))


@convt3
def transposed_3d_hardswish(x, w, b, p):
    y = t3(x, w, b) + p
    return y * F.hardswish(y)


@conv3
def conv_3d_softmax_mean(x, w, b, p):
    return torch.softmax(F.relu(F.hardswish(c3(x, w, b))), 1).mean((2, 3, 4))


@gemm
def gemm_instance_norm(x, w, b, p, g):
    y = F.instance_norm(F.linear(x, w, b).unsqueeze(1).unsqueeze(1)).squeeze(1).squeeze(1)
    return (y + g) * g


@gemm
def gemm_mish_twice(x, w, b, p, g):
    return F.mish(F.mish(F.linear(x, w, b)))


@gemm
def gemm_group_norm_hardtanh(x, w, b, p, g):
    return F.hardtanh(F.group_norm(F.linear(x, w, b), 16, p, g))


@conv2
def conv_least_scale(x, w, b, p):
    return (torch.min(c2(x, w, b), torch.tensor(0.5)) + p) * 2


@conv2
def conv_channel_min(x, w, b, p):
    return (c2(x, w, b) * 2).min(1, keepdim=True)[0]


@gemm
def gemm_batch_norm(x, w, b, p, g):
    return F.batch_norm(F.linear(x, w, b) * p, None, None, g, p, training=True)


@convt3
def transposed_3d_norm_gelu(x, w, b, p):
    return F.gelu(F.layer_norm(t3(x, w, b), (32,))) * 0.5


@conv2
def conv_hardswish_pool_mish(x, w, b, p):
    return F.mish(F.max_pool2d(F.hardswish(c2(x, w, b) - 0.5), 2))


@convt2
def transposed_min_sum_gelu(x, w, b, p):
    return F.gelu(t2(x, w, b).min(1, keepdim=True)[0].sum(2, keepdim=True)) + 0.3


@gemm
def gemm_swish_group_norm(x, w, b, p, g):
    y = F.linear(x, w)
    y = torch.sigmoid(y) * y + p
    return F.group_norm(y, 32, p, g)


@convt3
def transposed_3d_pool_softmax(x, w, b, p):
    return torch.softmax(torch.clamp(F.avg_pool3d(t3(x, w, b), 2), 0, 1).flatten(2), 2) * 2


@gemm
def gemm_scaled_residual(x, w, b, p, g):
    y = F.linear(x, w, b)
    return y * 0.5 + y


@gemm
def gemm_batch_norm_gelu(x, w, b, p, g):
    return F.relu(F.gelu(F.batch_norm(F.linear(x, w, b), None, None, p, g, training=True)))


@convt2
def transposed_mean_logsumexp(x, w, b, p):
    return torch.logsumexp(t2(x, w, b).mean((2, 3), keepdim=True) + p, 1, keepdim=True).sum((2, 3)) * 10


@conv3
def conv_3d_pool_logsumexp(x, w, b, p):
    return F.relu(torch.logsumexp(F.max_pool3d(c3(x, w, b), 2), 1, keepdim=True))


@convt2
def transposed_means(x, w, b, p):
    return (t2(x, w, b) * 0.5).mean((2, 3), keepdim=True).mean((2, 3), keepdim=True)


@gemm
def two_gemms_logsumexp(x, w, b, p, g):
    return torch.logsumexp(F.linear(torch.sigmoid(F.linear(x, w, b)), w, p), 1)


@conv2
def conv_tanh_pool(x, w, b, p):
    return F.avg_pool2d(torch.tanh(c2(x, w, b) - 0.5) - 0.2, 2)


@conv3
def conv_3d_tanh_sigmoid(x, w, b, p):
    return torch.sigmoid(torch.tanh(c3(x, w, b) * p) * p)


@convt3
def transposed_3d_softmax_sigmoid(x, w, b, p):
    return torch.sigmoid(torch.softmax(t3(x, w, b), 1))


@convt3
def transposed_3d_pool_bias(x, w, b, p):
    return (F.avg_pool3d(t3(x, w, b) * 0.5, 2) + p) * 2


@gemm
def gemm_mean_gelu_residual(x, w, b, p, g):
    y = F.linear(x, w, b) - p
    y = F.gelu(torch.logsumexp(y.mean(1, keepdim=True), 1, keepdim=True))
    return y + x


@conv2
def conv_mish_batch_norm(x, w, b, p):
    y = c2(x, w, b)
    return F.batch_norm(torch.multiply(torch.tanh(F.softplus(y)), y), None, None, training=True)


@conv2
def conv_scale_gelu(x, w, b, p):
    return F.gelu(F.leaky_relu(c2(x, w, b) * p))


@gemm
def gemm_pool_sum(x, w, b, p, g):
    return F.max_pool1d(F.linear(x, w, b).unsqueeze(1), 2).squeeze(1).sum(1) * 0.5


@gemm
def gemm_sigmoid_sum(x, w, b, p, g):
    return torch.sigmoid(F.linear(x, w, b)).sum(1, keepdim=True)


@convt3
def transposed_3d_logsumexp_clamp(x, w, b, p):
    y = torch.logsumexp(t3(x, w, b), 1, keepdim=True)
    y = y * torch.sigmoid(y + 3) / 6
    return torch.clamp(y - 0.1, -1, 1)


@convt3
def transposed_3d_swish_group_norm(x, w, b, p):
    y = t3(x, w, b)
    return F.hardswish(F.group_norm(torch.sigmoid(y) * y, 4))


@gemm
def gemm_group_norm_leaky(x, w, b, p, g):
    y = F.leaky_relu(F.group_norm(F.linear(x, w, b), 512, p, g))
    return y + y


@gemm
def gemm_softmax(x, w, b, p, g):
    return torch.softmax(F.dropout(F.linear(x, w, b), 0.2, training=False), 1)


@conv2
def conv_gelu_global_mean(x, w, b, p):
    return F.adaptive_avg_pool2d(F.gelu(c2(x, w, b)), 1).squeeze(-1).squeeze(-1)


@gemm
def gemm_least_minus(x, w, b, p, g):
    return torch.min(F.linear(x, w, b), p) - p


@gemm
def gemm_sigmoid_residual(x, w, b, p, g):
    y = F.linear(x, w, b)
    return torch.sigmoid(y) * 2 + y


@conv2
def conv_batch_norm_scale(x, w, b, p):
    return F.batch_norm(c2(x, w, b), None, None, training=True) * 2


@convt3
def transposed_3d_leaky_pool(x, w, b, p):
    return F.max_pool3d(F.leaky_relu(F.leaky_relu(t3(x, w, b), 0.2) * p, 0.2), 2)


@gemm
def gemm_group_norm_min(x, w, b, p, g):
    return F.group_norm(F.linear(x, w, b), 512, p, g).min(1, keepdim=True)[0] + p


@gemm
def gemm_max_gelu(x, w, b, p, g):
    y = F.linear(x, w, b).max(1, keepdim=True).values
    return F.gelu(y - y.mean(1, keepdim=True))


@conv2
def conv_tanh_pool_bias(x, w, b, p):
    return F.max_pool2d(torch.tanh(c2(x, w, b)) * 2 + p, 4)


@conv3
def conv_3d_group_norm_least(x, w, b, p):
    return torch.clamp(torch.min(F.group_norm(c3(x, w, b), 8), torch.tensor(0.1)), 0.0, 1.0)


@gemm
def gemm_batch_norm_softmax(x, w, b, p, g):
    return torch.softmax(2 * F.batch_norm(F.linear(x, w, b), None, None, p, g, training=True), 1)


@conv2
def conv_group_norm_pool(x, w, b, p):
    return torch.clamp(F.max_pool2d(F.group_norm(c2(x, w, b), 16) * p, 2), 0, 1)


@gemm
def gemm_group_norm_swish(x, w, b, p, g):
    y = F.group_norm(F.linear(x, w, b), 256, p, g)
    y = y * torch.sigmoid(y) * p
    return y * torch.sigmoid(y)


@convt3
def transposed_3d_pool_softmax_max(x, w, b, p):
    y = torch.softmax(F.max_pool3d(t3(x, w, b), 2), 1) - p
    y = torch.sigmoid(y) * y
    return torch.max(y, 1)[0]


@convt2
def transposed_softmax_sigmoid(x, w, b, p):
    return torch.sigmoid((torch.softmax(t2(x, w, b), 1) + p) * 2)


@conv2
def conv_group_norm_logsumexp(x, w, b, p):
    y = c2(x, w, b)
    return torch.logsumexp(y + F.hardswish(torch.tanh(F.group_norm(y, 8))), 1, keepdim=True)


@convt2
def transposed_least_gelu(x, w, b, p):
    return F.gelu(torch.min(t2(x, w, b) + 0.5, torch.tensor(0.0))) * 2


@gemm
def gemm_mish_group_norm(x, w, b, p, g):
    return F.group_norm(F.mish(F.hardtanh(F.linear(x, w, b) + p)), 256, p, g)


@gemm
def gemm_pool_gelu_max(x, w, b, p, g):
    return (F.gelu(F.avg_pool1d(F.linear(x, w, b).unsqueeze(1), 16).squeeze(1)) * 2).max(1)[0]


@gemm
def gemm_gelu_softmax(x, w, b, p, g):
    return torch.softmax(F.gelu(F.linear(x, w, b)), 1)


@convt3
def transposed_3d_clamp(x, w, b, p):
    return torch.clamp(t3(x, w, b), -1) / 2


# --- of rows and of single elements ---


R = [{"b": 64, "l": 1024, "n": 768}]


@task(p=normal("n"), g=normal("n"), m=normal("n"), v=uniform("n"), workloads=[{"n": 10000000}])
def adamw(p, g, m, v):
    p = p * (1 - 1e-3 * 0.01)
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 1e-3 * (m / (1 - 0.9**10)) / ((v / (1 - 0.999**10)).sqrt() + 1e-8), m, v


@task(p=normal("n"), g=normal("n"), m=normal("n"), workloads=[{"n": 10000000}])
def lion(p, g, m):
    u = torch.sign(0.9 * m + 0.1 * g)
    return p - 1e-4 * (u + 0.1 * p), 0.99 * m + 0.01 * g


@task(
    q=normal("b, h, l, d"), cos=normal("l, d"), sin=normal("l, d"), workloads=[{"b": 4, "h": 32, "l": 2048, "d": 128}]
)
def rope_cached(q, cos, sin):
    q1, q2 = q.chunk(2, dim=-1)
    return q * cos + torch.cat((-q2, q1), -1) * sin


@task(
    q=normal("b, l, h, d"),
    cos=normal("l, e"),
    sin=normal("l, e"),
    workloads=[{"b": 4, "h": 32, "l": 2048, "d": 128, "e": 64}],
)
def rope_interleaved(q, cos, sin):
    a, c = q[..., 0::2], q[..., 1::2]
    co, si = cos[:, None, :], sin[:, None, :]
    return torch.stack((a * co - c * si, a * si + c * co), -1).flatten(-2)


@task(ids=integers("b, l", high="v"), t=normal("v, n"), workloads=[{"b": 16, "l": 2048, "v": 50000, "n": 1024}])
def embedding_scaled(ids, t):
    return F.embedding(ids, t) * 32.0


@task(x=normal("b, n"), workloads=[{"b": 16384, "n": 4096}])
def quant_rows(x):
    s = x.abs().amax(-1, keepdim=True) / 127
    return torch.round(x / s).clamp(-127, 127).to(torch.int8), s


@task(x=normal("b, n"), t=integers("b", high="n"), workloads=[{"b": 4096, "n": 32000}])
def ce_smooth(x, t):
    return F.cross_entropy(x, t, label_smoothing=0.1)


@task(x=normal("b, n"), t=integers("b", high="n"), workloads=[{"b": 4096, "n": 32000}])
def nll_rows(x, t):
    return F.cross_entropy(x, t, reduction="none")


@task(x=normal("b, e"), workloads=[{"b": 65536, "e": 64}])
def topk_gate(x):
    v, i = torch.topk(torch.sigmoid(x), 4, dim=-1)
    return v / v.sum(-1, keepdim=True), i


@task(x=normal("b, n"), w=normal("e, n"), workloads=[{"b": 16384, "n": 1024, "e": 64}])
def moe_router(x, w):
    v, i = torch.topk(torch.softmax(F.linear(x, w), -1), 8, dim=-1)
    return v / v.sum(-1, keepdim=True), i


@task(x=normal("b, n"), workloads=[{"b": 64, "n": 128256}])
def top_k_sampling(x):
    v, i = torch.topk(x / 0.7, 50, dim=-1)
    return torch.softmax(v, -1), i


@task(x=normal("b, l, d"), workloads=[{"b": 16, "l": 2048, "d": 1024}])
def returns_to_go(x):
    return x.flip(1).cumsum(1).flip(1) * 0.99


@task(x=normal("b, n"), w=normal("v, n"), t=integers("b", high="v"), workloads=[{"b": 2048, "n": 1024, "v": 32000}])
def linear_ce_smooth(x, w, t):
    return F.cross_entropy(F.linear(x, w), t, label_smoothing=0.1)


@task(x=normal("b, l, n"), w=normal("n"), be=normal("n"), workloads=R)
def ln_gelu(x, w, be):
    return F.gelu(F.layer_norm(x, (x.shape[-1],), w, be))


@task(x=normal("b, l, n"), w=normal("n"), r=normal("b, l, n"), workloads=R)
def add_rms(x, w, r):
    h = x + r
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * w, h


@task(x=normal("b, h, l, l2"), m=booleans("b, l2"), workloads=[{"b": 8, "h": 16, "l": 512, "l2": 512}])
def masked_softmax(x, m):
    return torch.softmax((x * 0.125).masked_fill(m[:, None, None, :], float("-inf")), -1)


@task(x=normal("b, h, l, l2"), s=normal("h"), p=normal("l, l2"), workloads=[{"b": 8, "h": 16, "l": 512, "l2": 512}])
def alibi(x, s, p):
    return torch.softmax(x + s[:, None, None] * p, -1)


@task(x=normal("b, m"), workloads=[{"b": 16384, "m": 8192}])
def geglu(x):
    a, g = x.chunk(2, -1)
    return a * F.gelu(g)


@task(x=normal("b, l, n"), g=normal("n"), r=normal("b, l, n"), workloads=R)
def layer_scale(x, g, r):
    return r + g * x


@task(
    x=normal("b, c, h, w"),
    s=normal("c"),
    t=normal("c"),
    m=normal("c"),
    v=uniform("c"),
    workloads=[{"b": 64, "c": 256, "h": 56, "w": 56}],
)
def bn_eval_relu(x, s, t, m, v):
    return F.relu(F.batch_norm(x, m, v, s, t, training=False))


@task(
    x=normal("b, c, h, w"),
    r=normal("b, c, h, w"),
    s=normal("c"),
    t=normal("c"),
    m=normal("c"),
    v=uniform("c"),
    workloads=[{"b": 64, "c": 256, "h": 56, "w": 56}],
)
def bn_eval_add_relu(x, r, s, t, m, v):
    return F.relu(F.batch_norm(x, m, v, s, t, training=False) + r)


@task(x=normal("b, n"), y=normal("b, n"), workloads=[{"b": 65536, "n": 512}])
def cosine(x, y):
    return F.cosine_similarity(x, y)


@task(x=normal("b, c, h, w"), workloads=[{"b": 64, "c": 256, "h": 56, "w": 56}])
def se_pool(x):
    return x.mean((2, 3))


@task(x=normal("b, c, h, w"), g=normal("b, c"), workloads=[{"b": 64, "c": 256, "h": 56, "w": 56}])
def se_scale(x, g):
    return x * torch.sigmoid(g)[:, :, None, None]


@task(x=normal("b, n"), workloads=[{"b": 65536, "n": 512}])
def std_rows(x):
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)


@task(x=normal("b, n"), workloads=[{"b": 65536, "n": 512}])
def lse(x):
    return torch.logsumexp(x, -1)


@task(x=normal("b, c, h, w"), workloads=[{"b": 32, "c": 256, "h": 64, "w": 64}])
def pixel_shuffle(x):
    return F.pixel_shuffle(x, 2)


@task(x=normal("b, c, h, w"), workloads=[{"b": 32, "c": 64, "h": 64, "w": 64}])
def upsample(x):
    return F.interpolate(x, scale_factor=2, mode="nearest")


@task(x=normal("b, n"), t=uniform("b, n"), workloads=[{"b": 4096, "n": 4096}])
def bce_logits(x, t):
    return F.binary_cross_entropy_with_logits(x, t)


@task(x=normal("b, n"), t=uniform("b, n"), workloads=[{"b": 4096, "n": 4096}])
def focal(x, t):
    p = torch.sigmoid(x)
    ce = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    return (ce * (1 - (p * t + (1 - p) * (1 - t))) ** 2).mean()


@task(x=normal("b, c, l"), g=normal("c"), be=normal("c"), workloads=[{"b": 64, "c": 512, "l": 3000}])
def inst(x, g, be):
    return F.leaky_relu(F.instance_norm(x, weight=g, bias=be), 0.2)


@task(x=normal("b, c, h, w"), g=normal("c"), be=normal("c"), workloads=[{"b": 32, "c": 256, "h": 64, "w": 64}])
def ln_channels(x, g, be):
    u = x.mean(1, keepdim=True)
    s = (x - u).pow(2).mean(1, keepdim=True)
    return g[:, None, None] * (x - u) / torch.sqrt(s + 1e-6) + be[:, None, None]


@task(x=normal("b, l, d"), a=uniform("b, l, d"), workloads=[{"b": 16, "l": 2048, "d": 1024}])
def cumsum_time(x, a):
    return torch.cumsum(x * a, 1)


@task(x=normal("b, n"), i=integers("b, k", high="n"), workloads=[{"b": 4096, "n": 4096, "k": 512}])
def gather_rows(x, i):
    return torch.gather(x, 1, i)


@task(x=normal("b, n"), workloads=[{"b": 65536, "n": 1024}])
def fake_quant(x):
    s = x.abs().amax(-1, keepdim=True) / 7
    return torch.round(x / s).clamp(-8, 7) * s


@task(x=normal("b, n"), workloads=[{"b": 65536, "n": 1024}])
def normalize(x):
    return F.normalize(x, dim=-1)


@task(a=normal("b, n"), p=normal("b, n"), q=normal("b, n"), workloads=[{"b": 65536, "n": 1024}])
def triplet(a, p, q):
    return F.relu(F.pairwise_distance(a, p) - F.pairwise_distance(a, q) + 0.3).mean()


@task(
    x=normal("b, n", dtype="bfloat16"),
    w=normal("n", dtype="bfloat16"),
    precision="bf16",
    workloads=[{"b": 65536, "n": 1024}],
)
def rms_bf16(x, w):
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * w
