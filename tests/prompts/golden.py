"""The prompts of all operators of all methods, as files to compare with: `python -m tests.prompts.golden` writes them.

A changed prompt is a changed experiment: the difference belongs in the commit that made it.
"""

from __future__ import annotations

from pathlib import Path

from tests.prompts.briefs import EVERYTHING, REPAIR, brief
from warpsmith.model.brief import Brief, Prompt
from warpsmith.model.method import Method
from warpsmith.prompts.renderer import render
from warpsmith.system.plugins import plugins

FOLDER = Path(__file__).parent / "golden"


def briefs() -> dict[str, Brief]:
    """By file name. `run` repairs in the same words for all methods."""
    methods: dict[str, Method] = plugins("warpsmith.methods")
    found = {
        f"{name}.{operator.name}.txt": brief(operator)
        for name, method in sorted(methods.items())
        for operator in method.operators
    }
    found |= {
        f"{name}.first.txt": brief(method.operators[0], "cpu", first=True) for name, method in sorted(methods.items())
    }
    return found | {"common.repair.txt": brief(REPAIR), "common.everything.txt": brief(EVERYTHING)}


def shown(prompt: Prompt) -> str:
    """A prompt as a file."""
    return "\n".join(f"=== {message.role} ===\n{message.text}" for message in prompt.messages)


def main() -> None:
    """Write all of them anew, and remove those of operators that are gone."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for name, asked in briefs().items():
        (FOLDER / name).write_text(shown(render(asked)), encoding="utf-8")


if __name__ == "__main__":
    main()
