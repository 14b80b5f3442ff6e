"""An OpenAI-compatible server for a local Qwen2 model that answers many requests in one batch.

    python -m benchmarks.model_server --model model.gguf --name qwen2.5-coder-1.5b --port 8011

For the record of methods with a real model (`methods_record.py`): a model and an evaluator on one GPU. The server holds
the evaluator's device lock while it computes, so that no kernel is timed beside it. `transformers serve` offers neither
that, nor `n`, nor a temperature per request with continuous batching.

Offers chat completions with `temperature`, `top_p`, `max_tokens`, `stop`, `n`, `stream` and usage counts, `/v1/models`
and `/health`. Refuses tools and response formats. Needs transformers (for the tokenizer) and, for GGUF files, gguf.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol

import torch
from benchmarks.model_decoder import Decoder, read_folder, read_gguf
from torch import Tensor

TURN_S = 0.5  # how long the engine keeps the device before others may take it
GAP_S = 0.003  # between two turns: a waiting evaluator takes the device in that time
_FLUSH = 48  # tokens between two pieces of a stream
_CANDIDATES = 64  # most likely tokens among which one is drawn
_REFUSED = ("tools", "functions", "response_format", "logprobs")


class ChatTokenizer(Protocol):
    """Turns messages into tokens and tokens into text."""

    ends: frozenset[int]  # tokens that end a reply

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """The tokens of a conversation, up to where the reply begins."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special tokens."""
        ...


@dataclass
class Generation:
    """One reply in progress."""

    prompt: list[int]
    most: int  # tokens
    temperature: float
    top_p: float
    stops: tuple[str, ...]
    arrived: queue.SimpleQueue[str | None] = field(default_factory=queue.SimpleQueue)  # pieces; None at the end
    tokens: list[int] = field(default_factory=list)
    sent: str = ""  # of the text
    finish: str = ""  # "stop", "length" or "error" at the end
    cancelled: bool = False


class Engine:
    """Generates replies to all requests in one batch, in a thread of its own."""

    def __init__(
        self,
        decoder: Decoder,
        tokenizer: ChatTokenizer,
        *,
        seed: int = 0,
        lock: AbstractContextManager[None] | None = None,
    ) -> None:
        self._decoder, self._tokenizer = decoder, tokenizer
        self._waiting: deque[Generation] = deque()
        self._slots: list[Generation | None] = [None] * decoder.slots
        self._changed = threading.Condition()
        self._random = torch.Generator(device=decoder.device).manual_seed(seed)
        self._lock = lock or nullcontext()
        self._closing = False
        self.generated = 0  # tokens
        self.steps = 0
        self.busy_s = 0.0  # with the device
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, generation: Generation) -> None:
        """Begin to generate a reply."""
        with self._changed:
            self._waiting.append(generation)
            self._changed.notify()

    @property
    def in_progress(self) -> tuple[int, int]:
        """Replies being generated, and waiting ones."""
        return sum(slot is not None for slot in self._slots), len(self._waiting)

    def close(self) -> None:
        """End the thread; replies in progress end as they are."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closing and not self._waiting and not any(self._slots):
                    self._changed.wait()
                if self._closing:
                    break
            with self._lock:
                begun = time.monotonic()
                try:
                    while self._advance() and time.monotonic() - begun < TURN_S and not self._closing:
                        pass
                except (RuntimeError, ValueError) as fault:
                    print(f"generation failed: {fault}", file=sys.stderr, flush=True)
                    self._end_all("error")
                self.busy_s += time.monotonic() - begun
            time.sleep(GAP_S)
        self._end_all("error")

    def _end_all(self, finish: str) -> None:
        for slot, generation in enumerate(self._slots):
            if generation is not None:
                self._end(slot, finish)
        while self._waiting:
            waiting = self._waiting.popleft()
            waiting.finish = finish
            waiting.arrived.put(None)

    def _advance(self) -> bool:
        """Read one waiting prompt into a free slot, then add a token to every reply; False if there is no work."""
        free = next((number for number, slot in enumerate(self._slots) if slot is None), None)
        if self._waiting and free is not None:
            generation = self._waiting.popleft()
            scores = self._decoder.prefill(free, generation.prompt)
            self._slots[free] = generation
            self._add(free, self._drawn(scores, [generation])[0])
            if self._waiting and None in self._slots:
                return True  # all that wait are read first: a step then serves them all
        if not any(self._slots):
            return bool(self._waiting)
        tokens = [slot.tokens[-1] if slot else 0 for slot in self._slots]
        places = [len(slot.prompt) + len(slot.tokens) - 1 if slot else 0 for slot in self._slots]
        drawn = self._drawn(self._decoder.step(tokens, places), self._slots)
        self.steps += 1
        for number, slot in enumerate(self._slots):
            if slot is not None:
                self._add(number, drawn[number])
        return True

    @torch.inference_mode()
    def _drawn(self, scores: Tensor, slots: Sequence[Generation | None]) -> list[int]:
        """One token for each row; the most likely one at temperature 0."""
        heat = torch.tensor([slot.temperature if slot else 0.0 for slot in slots], device=scores.device)[:, None]
        share = torch.tensor([slot.top_p if slot else 1.0 for slot in slots], device=scores.device)[:, None]
        best, tokens = scores.topk(min(_CANDIDATES, scores.shape[-1]), -1)
        chance = (best / heat.clamp(min=1e-4)).softmax(-1)
        chance = chance.masked_fill(chance.cumsum(-1) - chance > share, 0.0)  # the most likely one always stays
        picked = torch.multinomial(chance, 1, generator=self._random)
        picked = torch.where(heat > 0, picked, torch.zeros_like(picked))
        found: list[int] = tokens.gather(1, picked)[:, 0].tolist()
        return found

    def _add(self, slot: int, token: int) -> None:
        generation = self._slots[slot]
        assert generation is not None, "only replies in progress get tokens"
        self.generated += 1
        ended = token in self._tokenizer.ends
        generation.tokens.append(token)
        if generation.cancelled or ended:
            self._end(slot, "stop")
        elif len(generation.tokens) >= generation.most:
            self._end(slot, "length")
        elif len(generation.tokens) % _FLUSH == 0 and self._flush(generation, last=False):
            self._end(slot, "stop")

    def _end(self, slot: int, finish: str) -> None:
        generation = self._slots[slot]
        assert generation is not None, "only replies in progress end"
        self._slots[slot] = None
        generation.finish = "stop" if self._flush(generation, last=True) else finish
        generation.arrived.put(None)

    def _flush(self, generation: Generation, *, last: bool) -> bool:
        """Send the text that is new; True if it has a stop text, where it ends."""
        plain = [token for token in generation.tokens if token not in self._tokenizer.ends]
        text = self._tokenizer.decode(plain)
        found = [at for stop in generation.stops if (at := text.find(stop)) >= 0]
        if found:
            text = text[: min(found)]
        elif not last:
            # Half a character, or the beginning of a stop text, may be at the end.
            held = max((len(stop) for stop in generation.stops), default=1)
            text = text.rstrip("\ufffd")[: max(len(text) - held, len(generation.sent))]
        if len(text) > len(generation.sent):
            generation.arrived.put(text[len(generation.sent) :])
            generation.sent = text
        return bool(found)


class Refused(Exception):
    """A request that cannot be served; the message goes to the client with status 400."""


class ModelServer(ThreadingHTTPServer):
    """The HTTP server of one engine."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, address: tuple[str, int], name: str, engine: Engine, decoder: Decoder, tokenizer: ChatTokenizer):
        super().__init__(address, _Handler)
        self.name, self.engine, self.decoder, self.tokenizer = name, engine, decoder, tokenizer
        self.begun = time.time()

    def generations(self, body: dict[str, object]) -> list[Generation]:
        """The replies that a request asks for."""
        for word in _REFUSED:
            if body.get(word):
                raise Refused(f"{word} is not supported by this server; leave it out.")
        prompt = self.tokenizer.encode_chat(_messages(body.get("messages")))
        room = self.decoder.length - len(prompt)
        asked = body.get("max_tokens") or body.get("max_completion_tokens")
        most = int(_number(asked, "max_tokens", 1, 1e9)) if asked else room
        if room < 1 or (asked and most > room):
            raise Refused(
                f"context_length_exceeded: the prompt has {len(prompt)} tokens and {most} more are asked for; this "
                f"server's limit is {self.decoder.length} tokens in all."
            )
        stops = body.get("stop") or ()
        texts = (stops,) if isinstance(stops, str) else tuple(stops) if isinstance(stops, list) else ()
        if not all(isinstance(text, str) and text for text in texts):
            raise Refused("stop must be a text or a list of texts.")
        return [
            Generation(
                list(prompt),
                min(most, room),
                _number(body.get("temperature", 1.0), "temperature", 0.0, 5.0),
                _number(body.get("top_p", 1.0), "top_p", 0.0, 1.0),
                texts,
            )
            for _ in range(int(_number(body.get("n") or 1, "n", 1, 64)))
        ]


def _number(value: object, name: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise Refused(f"{name} must be a number from {low:g} to {high:g}.")
    return float(value)


def _messages(value: object) -> list[dict[str, str]]:
    if not isinstance(value, list) or not value:
        raise Refused("messages must be a list of objects with role and content.")
    found = []
    for item in value:
        role, content = (item.get("role"), item.get("content")) if isinstance(item, dict) else (None, None)
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        if role not in ("system", "user", "assistant") or not isinstance(content, str):
            raise Refused("a message needs the role system, user or assistant, and text as its content.")
        found.append({"role": role, "content": content})
    return found


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a record makes thousands of requests."""

    def do_GET(self) -> None:
        server, engine = self.server, self.server.engine
        if self.path == "/health":
            active, waiting = engine.in_progress
            self._json(
                200,
                {
                    "status": "ok",
                    "active": active,
                    "waiting": waiting,
                    "generated_tokens": engine.generated,
                    "steps": engine.steps,
                    "device_s": round(engine.busy_s, 3),
                    "up_s": round(time.time() - server.begun, 3),
                },
            )
        elif self.path == "/v1/models":
            card = {"id": server.name, "object": "model", "owned_by": "local", "max_model_len": server.decoder.length}
            self._json(200, {"object": "list", "data": [card]})
        else:
            self._json(404, _error(f"there is nothing at {self.path}."))

    def do_POST(self) -> None:
        try:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size))
        except ValueError:
            self._json(400, _error("the body is no JSON."))
            return
        if self.path != "/v1/chat/completions" or not isinstance(body, dict):
            self._json(404, _error(f"there is nothing at {self.path}."))
            return
        if body.get("model") != self.server.name:
            self._json(404, _error(f"the model is {self.server.name}."))
            return
        try:
            generations = self.server.generations(body)
        except Refused as refused:
            self._json(400, _error(str(refused)))
            return
        for generation in generations:
            self.server.engine.submit(generation)
        try:
            if body.get("stream"):
                options = body.get("stream_options")
                self._stream(generations, bool(isinstance(options, dict) and options.get("include_usage")))
            else:
                self._whole(generations)
        except OSError:  # the client has gone
            for generation in generations:
                generation.cancelled = True

    def _whole(self, generations: Sequence[Generation]) -> None:
        texts = ["".join(_pieces(generation)) for generation in generations]
        if any(generation.finish == "error" for generation in generations):
            self._json(500, _error("the generation failed; see the server's log."))
            return
        choices = [
            {"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": each.finish}
            for index, (text, each) in enumerate(zip(texts, generations, strict=True))
        ]
        self._json(200, self._reply("chat.completion") | {"choices": choices, "usage": _usage(generations)})

    def _stream(self, generations: Sequence[Generation], usage: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for index, generation in enumerate(generations):
            for piece in _pieces(generation):
                self._event([{"index": index, "delta": {"role": "assistant", "content": piece}, "finish_reason": None}])
            if generation.finish == "error":
                self.wfile.write(f"data: {json.dumps(_error('the generation failed.'))}\n\n".encode())
                return
            self._event([{"index": index, "delta": {}, "finish_reason": generation.finish}])
        if usage:
            self._event([], usage=_usage(generations))
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, choices: list[dict[str, object]], **more: object) -> None:
        event = self._reply("chat.completion.chunk") | {"choices": choices, **more}
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()

    def _reply(self, kind: str) -> dict[str, object]:
        return {"id": f"chat-{id(self):x}", "object": kind, "created": int(time.time()), "model": self.server.name}

    def _json(self, status: int, content: object) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _error(message: str) -> dict[str, object]:
    return {"error": {"message": message, "type": "invalid_request_error"}}


def _pieces(generation: Generation) -> Iterator[str]:
    while (piece := generation.arrived.get()) is not None:
        yield piece


def _usage(generations: Sequence[Generation]) -> dict[str, object]:
    prompt, completion = len(generations[0].prompt), sum(len(each.tokens) for each in generations)
    details = {"cached_tokens": 0}
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": details,
    }


class TransformersTokenizer:
    """The tokenizer of a model by transformers."""

    def __init__(self, model: Path, tokenizer: Path | None) -> None:
        from transformers import AutoTokenizer

        if tokenizer is None and model.suffix == ".gguf":
            self._own = AutoTokenizer.from_pretrained(str(model.parent), gguf_file=model.name)
        else:
            self._own = AutoTokenizer.from_pretrained(str(tokenizer or model))
        names = ("<|im_end|>", "<|endoftext|>")
        known = self._own.get_vocab()
        self.ends = frozenset({known[name] for name in names if name in known} | {self._own.eos_token_id})

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """See `ChatTokenizer`."""
        text = self._own.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        found: list[int] = self._own.encode(text, add_special_tokens=False)
        return found

    def decode(self, tokens: Sequence[int]) -> str:
        """See `ChatTokenizer`."""
        return str(self._own.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def save(self, folder: Path) -> None:
        """Write the tokenizer to a folder, for `--tokenizer`: that reads faster than a GGUF file."""
        self._own.save_pretrained(str(folder))


class DeviceTurns:
    """The evaluator's lock of a device as a context manager that can be entered again and again."""

    def __init__(self, device: str) -> None:
        from warpsmith.evaluator.supervisor.device_lock import DeviceLock, lock_folder
        from warpsmith.hardware.device import select_device
        from warpsmith.model.settings import Paths

        chosen = select_device(device)
        folder = lock_folder(chosen.kind, Paths.from_environment().cache)
        self._lock = DeviceLock(folder, chosen.hardware, shared=True)
        self._held: AbstractContextManager[None] | None = None

    def __enter__(self) -> None:
        self._held = self._lock.held()
        self._held.__enter__()

    def __exit__(self, *_: object) -> None:
        assert self._held is not None, "entered before"
        self._held.__exit__(None, None, None)


@contextmanager
def serving(
    decoder: Decoder,
    tokenizer: ChatTokenizer,
    *,
    name: str,
    port: int = 0,
    seed: int = 0,
    lock: AbstractContextManager[None] | None = None,
) -> Iterator[ModelServer]:
    """A server in a thread of its own while the block runs."""
    engine = Engine(decoder, tokenizer, seed=seed, lock=lock)
    server = ModelServer(("127.0.0.1", port), name, engine, decoder, tokenizer)
    thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        engine.close()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a GGUF file, or a folder of transformers")
    parser.add_argument("--name", required=True, help="the model's name in requests")
    parser.add_argument("--tokenizer", type=Path, help="a folder that --save-tokenizer wrote")
    parser.add_argument("--save-tokenizer", type=Path, help="write the tokenizer there and end")
    parser.add_argument("--port", type=int, default=8011)
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--slots", type=int, default=96, help="replies at once")
    parser.add_argument("--length", type=int, default=12288, help="tokens of a prompt and its reply")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-graphs", action="store_true", help="no CUDA graphs")
    parser.add_argument("--no-lock", action="store_true", help="compute while kernels are timed: wrong timings")
    options = parser.parse_args()
    tokenizer = TransformersTokenizer(options.model, options.tokenizer)
    if options.save_tokenizer:
        tokenizer.save(options.save_tokenizer)
        return 0
    begun = time.monotonic()
    dtype: torch.dtype = getattr(torch, options.dtype)
    if options.model.suffix == ".gguf":
        shape, weights = read_gguf(options.model, options.device, dtype, os.cpu_count() or 1)
    else:
        shape, weights = read_folder(options.model, options.device, dtype)
    decoder = Decoder(shape, weights, slots=options.slots, length=options.length, graphs=not options.no_graphs)
    print(f"{options.name}: {shape} read in {time.monotonic() - begun:.1f} s on {options.device}.", flush=True)
    lock = None if options.no_lock or options.device == "cpu" else DeviceTurns(options.device)
    with serving(decoder, tokenizer, name=options.name, port=options.port, seed=options.seed, lock=lock):
        print(f"ready: http://127.0.0.1:{options.port}/v1", flush=True)
        threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
