"""A decoder of Qwen2 models with a cache of keys and values for many requests at once, for `model_server.py`.

The weights come from a GGUF file (dequantised) or from a folder as transformers writes it. The forward pass is written
out here: a step for all requests is then a few hundred kernel launches, captured as a CUDA graph where that works.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

_BUCKET = 1024  # tokens; a step reads the cache up to a multiple of this
_GGUF_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_q.bias": "self_attn.q_proj.bias",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_k.bias": "self_attn.k_proj.bias",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_v.bias": "self_attn.v_proj.bias",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a Qwen2 model."""

    layers: int
    heads: int
    kv_heads: int
    width: int
    context: int
    eps: float = 1e-6
    theta: float = 1e6

    @property
    def head_width(self) -> int:
        """Numbers in one head."""
        return self.width // self.heads


@dataclass(frozen=True)
class _Layer:
    """The weights of one layer; query, key and value are one product, gate and up another."""

    norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


def read_gguf(path: Path, device: str, dtype: torch.dtype, threads: int) -> tuple[ModelShape, dict[str, Tensor]]:
    """The shape and the weights in a GGUF file, under the names that transformers uses."""
    import gguf

    reader = gguf.GGUFReader(str(path))

    def field(name: str) -> float:
        return float(reader.get_field(f"qwen2.{name}").contents())

    architecture = reader.get_field("general.architecture").contents()
    if architecture != "qwen2":
        raise SystemExit(f"{path} is a {architecture} model; this server decodes qwen2 models only.")
    shape = ModelShape(
        int(field("block_count")),
        int(field("attention.head_count")),
        int(field("attention.head_count_kv")),
        int(field("embedding_length")),
        int(field("context_length")),
        field("attention.layer_norm_rms_epsilon"),
        field("rope.freq_base"),
    )

    def weight(tensor: gguf.ReaderTensor) -> tuple[str, Tensor]:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        plain = torch.from_numpy(values if values.flags.writeable else values.copy())
        return _plain_name(tensor.name), plain.to(dtype).to(device)

    with ThreadPoolExecutor(threads) as pool:  # numpy releases the interpreter's lock
        return shape, dict(pool.map(weight, reader.tensors))


def _plain_name(name: str) -> str:
    if name.startswith("blk."):
        _, number, rest = name.split(".", 2)
        return f"model.layers.{number}.{_GGUF_NAMES[rest]}"
    known = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    return f"{known[name.removesuffix('.weight')]}.weight"


def read_folder(path: Path, device: str, dtype: torch.dtype) -> tuple[ModelShape, dict[str, Tensor]]:
    """The shape and the weights in a folder with config.json and safetensors files."""
    from safetensors.torch import load_file

    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") != "qwen2":
        raise SystemExit(f"{path} holds a {config.get('model_type')} model; this server decodes qwen2 models only.")
    rope = config.get("rope_parameters") or config
    shape = ModelShape(
        config["num_hidden_layers"],
        config["num_attention_heads"],
        config["num_key_value_heads"],
        config["hidden_size"],
        config["max_position_embeddings"],
        config["rms_norm_eps"],
        rope["rope_theta"],
    )
    weights: dict[str, Tensor] = {}
    for file in sorted(path.glob("*.safetensors")):
        weights |= {name: value.to(dtype).to(device) for name, value in load_file(str(file)).items()}
    return shape, weights


class Decoder:
    """The model with a cache of `slots` requests, each of at most `length` tokens."""

    def __init__(
        self, shape: ModelShape, weights: Mapping[str, Tensor], *, slots: int, length: int, graphs: bool = False
    ) -> None:
        self.shape, self.slots, self.length = shape, slots, min(length, shape.context)
        self._embedding = weights["model.embed_tokens.weight"]
        self._head = weights.get("lm_head.weight", self._embedding)
        self._norm = weights["model.norm.weight"]
        self._layers = [_layer(weights, f"model.layers.{number}.") for number in range(shape.layers)]
        device, dtype = self._embedding.device, self._embedding.dtype
        self.device = device
        self._length = -(-self.length // _BUCKET) * _BUCKET if self.length > _BUCKET else self.length
        size = (shape.layers, slots, shape.kv_heads, self._length, shape.head_width)
        self._keys = torch.zeros(size, dtype=dtype, device=device)
        self._values = torch.zeros(size, dtype=dtype, device=device)
        self._cos, self._sin = _rotations(shape, self._length, device, dtype)
        self._rows = torch.arange(slots, device=device)
        self._tokens = torch.zeros(slots, dtype=torch.long, device=device)
        self._places = torch.zeros(slots, dtype=torch.long, device=device)
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._use_graphs = graphs and device.type == "cuda"

    @torch.inference_mode()
    def prefill(self, slot: int, tokens: Sequence[int]) -> Tensor:
        """Read a prompt into a slot; returns the scores of the next token, as a row."""
        count, shape = len(tokens), self.shape
        state = self._embedding[torch.tensor(tokens, device=self.device)]
        cos, sin = self._cos[:count, None], self._sin[:count, None]
        for number, layer in enumerate(self._layers):
            query, key, value = self._qkv(layer, state, cos, sin)
            self._keys[number, slot, :, :count] = key.transpose(0, 1)
            self._values[number, slot, :, :count] = value.transpose(0, 1)
            group = shape.heads // shape.kv_heads
            seen = functional.scaled_dot_product_attention(
                query.transpose(0, 1)[None],
                key.transpose(0, 1).repeat_interleave(group, 0)[None],
                value.transpose(0, 1).repeat_interleave(group, 0)[None],
                is_causal=True,
            )
            state = self._rest(layer, state, seen[0].transpose(0, 1).reshape(count, shape.width))
        return self._scores(state[-1:])

    @torch.inference_mode()
    def step(self, tokens: Sequence[int], places: Sequence[int]) -> Tensor:
        """The scores of the next token of every slot, after its latest token, which stands at its place."""
        self._tokens.copy_(torch.tensor(tokens))
        self._places.copy_(torch.tensor(places))
        reach = min(-(-(max(places) + 1) // _BUCKET) * _BUCKET, self._length)
        if not self._use_graphs:
            return self._step(reach)
        if reach not in self._graphs:
            try:
                self._graphs[reach] = self._captured(reach)
            except RuntimeError as fault:
                print(f"CUDA graphs do not work here ({fault}); going on without.", flush=True)
                self._use_graphs = False
                return self._step(reach)
        graph, scores = self._graphs[reach]
        graph.replay()
        return scores

    def _captured(self, reach: int) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """A graph of one step; the first two steps run before it, so that libraries are set up."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._step(reach)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            scores = self._step(reach)
        return graph, scores

    def _step(self, reach: int) -> Tensor:
        shape, places = self.shape, self._places
        group = shape.heads // shape.kv_heads
        state = self._embedding[self._tokens]
        cos, sin = self._cos[places, None], self._sin[places, None]
        hidden = torch.arange(reach, device=self.device)[None] > places[:, None]
        for number, layer in enumerate(self._layers):
            query, key, value = self._qkv(layer, state, cos, sin)
            keys, values = self._keys[number], self._values[number]
            keys[self._rows, :, places] = key
            values[self._rows, :, places] = value
            # The heads that share keys are the rows of one product.
            query = query.view(self.slots, shape.kv_heads, group, shape.head_width)
            weight = torch.matmul(query, keys[:, :, :reach].transpose(2, 3)) * shape.head_width**-0.5
            weight = weight.masked_fill(hidden[:, None, None], float("-inf")).softmax(-1, dtype=torch.float32)
            seen = torch.matmul(weight.to(values.dtype), values[:, :, :reach])
            state = self._rest(layer, state, seen.reshape(self.slots, shape.width))
        return self._scores(state)

    def _qkv(self, layer: _Layer, state: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values as [tokens, heads, width], rotated by their places."""
        shape = self.shape
        mixed = functional.linear(self._normed(state, layer.norm), layer.qkv, layer.qkv_bias)
        heads = mixed.view(len(state), shape.heads + 2 * shape.kv_heads, shape.head_width)
        query, key, value = heads.split([shape.heads, shape.kv_heads, shape.kv_heads], 1)
        return _rotated(query, cos, sin), _rotated(key, cos, sin), value

    def _rest(self, layer: _Layer, state: Tensor, seen: Tensor) -> Tensor:
        """The part of a layer after its attention."""
        state = state + functional.linear(seen, layer.out)
        gate, up = functional.linear(self._normed(state, layer.mlp_norm), layer.gate_up).chunk(2, -1)
        return state + functional.linear(functional.silu(gate) * up, layer.down)

    def _normed(self, state: Tensor, weight: Tensor) -> Tensor:
        wide = state.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.shape.eps)
        return weight * scaled.to(state.dtype)

    def _scores(self, state: Tensor) -> Tensor:
        return functional.linear(self._normed(state, self._norm), self._head).float()


def _layer(weights: Mapping[str, Tensor], prefix: str) -> _Layer:
    def of(*names: str) -> Iterator[Tensor]:
        return (weights[prefix + name] for name in names)

    parts = ("q", "k", "v")
    return _Layer(
        norm=weights[f"{prefix}input_layernorm.weight"],
        qkv=torch.cat([*of(*(f"self_attn.{part}_proj.weight" for part in parts))]),
        qkv_bias=torch.cat([*of(*(f"self_attn.{part}_proj.bias" for part in parts))]),
        out=weights[f"{prefix}self_attn.o_proj.weight"],
        mlp_norm=weights[f"{prefix}post_attention_layernorm.weight"],
        gate_up=torch.cat([*of("mlp.gate_proj.weight", "mlp.up_proj.weight")]),
        down=weights[f"{prefix}mlp.down_proj.weight"],
    )


def _rotations(shape: ModelShape, length: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of all places, as [places, head width]."""
    steps = torch.arange(0, shape.head_width, 2, dtype=torch.float32) / shape.head_width
    angles = torch.outer(torch.arange(length, dtype=torch.float32), 1.0 / shape.theta**steps)
    both = torch.cat((angles, angles), -1)
    return both.cos().to(device, dtype), both.sin().to(device, dtype)


def _rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = heads.chunk(2, -1)
    return heads * cos + torch.cat((-second, first), -1) * sin
