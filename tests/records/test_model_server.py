"""The model server with a tiny random Qwen2 model: batches, limits, stop texts, streams, refusals, turns."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import model_server
from benchmarks.model_decoder import Decoder, ModelShape, read_folder
from benchmarks.model_server import ModelServer, serving

SHAPE = ModelShape(layers=2, heads=4, kv_heads=2, width=32, context=256)
VOCABULARY, INNER, END = 128, 48, 127


def weights(shape: ModelShape = SHAPE, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random weights, with large steps so that replies differ."""
    random = torch.Generator().manual_seed(seed)
    kv = shape.kv_heads * shape.head_width
    sizes = {"model.embed_tokens.weight": (VOCABULARY, shape.width), "lm_head.weight": (VOCABULARY, shape.width)}
    sizes["model.norm.weight"] = (shape.width,)  # type: ignore[assignment]
    for number in range(shape.layers):
        prefix = f"model.layers.{number}."
        each: dict[str, tuple[int, ...]] = {
            "input_layernorm.weight": (shape.width,),
            "post_attention_layernorm.weight": (shape.width,),
            "self_attn.q_proj.weight": (shape.width, shape.width),
            "self_attn.q_proj.bias": (shape.width,),
            "self_attn.k_proj.weight": (kv, shape.width),
            "self_attn.k_proj.bias": (kv,),
            "self_attn.v_proj.weight": (kv, shape.width),
            "self_attn.v_proj.bias": (kv,),
            "self_attn.o_proj.weight": (shape.width, shape.width),
            "mlp.gate_proj.weight": (INNER, shape.width),
            "mlp.up_proj.weight": (INNER, shape.width),
            "mlp.down_proj.weight": (shape.width, INNER),
        }
        sizes |= {prefix + name: size for name, size in each.items()}  # type: ignore[misc]
    return {name: torch.randn(size, generator=random) * 0.4 for name, size in sizes.items()}


class Letters:
    """One token for each character below 127."""

    ends = frozenset({END})

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """See `ChatTokenizer`."""
        return [ord(letter) % END for message in messages for letter in message["content"]]

    def decode(self, tokens: Sequence[int]) -> str:
        """See `ChatTokenizer`."""
        return "".join(map(chr, tokens))


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    decoder = Decoder(SHAPE, weights(), slots=4, length=200)
    with serving(decoder, Letters(), name="tiny") as running:
        yield running


def ask(server: ModelServer, text: str = "hello", **more: Any) -> Any:
    body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "temperature": 0, **more}
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.server_port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        content = response.read().decode()
        return content if more.get("stream") else json.loads(content)


def text_of(reply: Any) -> str:
    found: str = reply["choices"][0]["message"]["content"]
    return found


def test_a_batch_gives_the_replies_of_single_requests(server: ModelServer) -> None:
    prompts = [chr(40 + 7 * number) * (number + 1) for number in range(9)]  # more than slots
    alone = [text_of(ask(server, prompt, max_tokens=30)) for prompt in prompts]
    with ThreadPoolExecutor(9) as pool:
        together = list(pool.map(lambda prompt: text_of(ask(server, prompt, max_tokens=30)), prompts))
    assert together == alone
    assert len(set(alone)) > 3


def test_steps_continue_what_prefill_began() -> None:
    decoder = Decoder(SHAPE, weights(), slots=3, length=100)
    tokens = [3, 1, 4, 1, 5, 9, 2, 6]
    whole = decoder.prefill(0, tokens)
    decoder.prefill(1, tokens[:5])
    for place in (5, 6, 7):
        scores = decoder.step([0, tokens[place], 0], [0, place, 0])
    torch.testing.assert_close(scores[1], whole[0], rtol=1e-4, atol=1e-4)


def test_usage_limits_and_several_replies(server: ModelServer) -> None:
    reply = ask(server, "abcde", max_tokens=7, n=3, temperature=1.0)
    assert [choice["finish_reason"] for choice in reply["choices"]].count("length") == 3
    assert reply["usage"]["prompt_tokens"] == 5
    assert reply["usage"]["completion_tokens"] == 21
    assert len({choice["message"]["content"] for choice in reply["choices"]}) > 1


def test_top_p_of_0_leaves_the_most_likely_token(server: ModelServer) -> None:
    hot = text_of(ask(server, "abc", max_tokens=12, temperature=5.0, top_p=0))
    assert hot == text_of(ask(server, "abc", max_tokens=12))


def test_a_reply_ends_before_a_stop_text(server: ModelServer) -> None:
    whole = text_of(ask(server, "stop here", max_tokens=120))
    stop = whole[60:63]
    cut = ask(server, "stop here", max_tokens=120, stop=[stop])
    assert text_of(cut) == whole[: whole.index(stop)]
    assert cut["choices"][0]["finish_reason"] == "stop"


def test_a_stream_has_the_same_text_and_the_usage(server: ModelServer) -> None:
    whole = ask(server, "stream", max_tokens=130)
    lines = ask(server, "stream", max_tokens=130, stream=True, stream_options={"include_usage": True}).splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    pieces = [event["choices"][0]["delta"].get("content", "") for event in events if event["choices"]]
    assert "".join(pieces) == text_of(whole)
    assert len(pieces) > 2
    assert events[-1]["usage"] == whole["usage"]
    assert lines[-2] == "data: [DONE]"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"max_tokens": 500}, "context_length_exceeded"),
        ({"tools": [{}]}, "tools is not supported"),
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"messages": []}, "messages must be a list"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_with_a_sentence(
    server: ModelServer, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(server, **more)
    assert refused.value.code == 400
    assert words in json.loads(refused.value.read())["error"]["message"]


def test_the_engine_gives_the_device_away_between_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_server, "TURN_S", 0.0)
    lock, turns = threading.Lock(), []

    class Turns:
        def __enter__(self) -> None:
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            turns.append(1)
            lock.release()

    decoder = Decoder(SHAPE, weights(), slots=1, length=100)
    with serving(decoder, Letters(), name="tiny", lock=Turns()) as running:
        ask(running, max_tokens=5)
        waiting = ThreadPoolExecutor(1)
        with lock:  # an evaluation: the model waits
            before = running.engine.generated
            late = waiting.submit(ask, running, max_tokens=5)
            with pytest.raises(TimeoutError):
                late.result(0.2)
            assert running.engine.generated == before
        assert late.result(30)["usage"]["completion_tokens"] == 5
    assert len(turns) >= 8  # one step each


def test_it_computes_what_transformers_computes(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=SHAPE.width,
        intermediate_size=INNER,
        num_hidden_layers=SHAPE.layers,
        num_attention_heads=SHAPE.heads,
        num_key_value_heads=SHAPE.kv_heads,
        max_position_embeddings=SHAPE.context,
        tie_word_embeddings=False,
    )
    model = transformers.Qwen2ForCausalLM(config).eval()
    model.load_state_dict(weights())
    model.save_pretrained(tmp_path)
    shape, found = read_folder(tmp_path, "cpu", torch.float32)
    tokens = [7, 21, 9, 64, 2]
    wanted = model(torch.tensor([tokens])).logits[0, -1]
    torch.testing.assert_close(Decoder(shape, found, slots=1, length=64).prefill(0, tokens)[0], wanted)
