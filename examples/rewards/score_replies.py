"""Scores recorded replies of a small language model, as a trainer would score the completions of its policy.

    python examples/rewards/score_replies.py                                # judged on this machine's CPU
    python examples/rewards/score_replies.py --engine http://HOST:PORT      # judged by a server with --allow-uploads

`replies.jsonl` holds what Qwen2.5-Coder-1.5B-Instruct (quantised to 4 bits) answered when it was asked for C++ kernels.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from warpsmith.rewards import KernelReward

HERE = Path(__file__).parent


def main() -> None:
    options = argparse.ArgumentParser(description="Score recorded replies.")
    options.add_argument("--engine", default="local", help="local, or http://HOST:PORT")
    options.add_argument("--task", default="", help="only the replies for this operator")
    given = options.parse_args()
    lines = [json.loads(line) for line in (HERE / "replies.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if given.task in ("", line["task"])]
    tasks = [f"{HERE / 'operators.py'}::{line['task']}" for line in lines]
    with KernelReward(backend="cpu", engine=given.engine) as reward:
        scored = reward.score([line["completion"] for line in lines], tasks)
    for line, each in zip(lines, scored, strict=True):
        print(f"{each.reward:6.2f}  {line['task']:10} {each.status:13} {' '.join(each.reason.split())[:70]}")


if __name__ == "__main__":
    main()
