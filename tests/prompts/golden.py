"""The prompts of all operators of all methods, as files to compare with: `python -m tests.prompts.golden` writes them.

A changed prompt is a changed experiment: the difference belongs in the commit that made it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from tests.prompts.briefs import BEST, EVERYTHING, REPAIR, STRATEGIES, brief, on_cpu
from warpsmith.model.brief import Brief, Prompt
from warpsmith.model.method import Method
from warpsmith.prompts.renderer import render
from warpsmith.system.plugins import plugins

FOLDER = Path(__file__).parent / "golden"


def briefs() -> dict[str, Brief]:
    """By file name: each operator in a run, first prompts and later ones on a GPU and a CPU, and repairs.

    Methods without a revisor repair in the same words: `common.repair`.
    """
    methods: dict[str, Method] = plugins("warpsmith.methods")
    found = {
        f"{name}.{operator.name}.txt": brief(operator)
        for name, method in sorted(methods.items())
        for operator in method.operators
    }
    for name, method in sorted(methods.items()):
        first, later = method.operators[0], method.stages[-1].operators[0]
        found[f"{name}.first.txt"] = brief(first, first=True)
        found[f"{name}.first.cpu.txt"] = on_cpu(brief(first, "cpu", first=True))
        found[f"{name}.{later.name}.cpu.txt"] = on_cpu(brief(later, "cpu"))
        repair = replace(method.revise or REPAIR, name="repair")
        if method.revise:
            found[f"{name}.repair.cpu.txt"] = on_cpu(brief(repair, "cpu"))
            found[f"{name}.revise-slow.txt"] = replace(
                brief(repair), failure=replace(BEST, share_of_floor=0.2), idea=None
            )
    vary = methods["agentic"].operators[0]
    return found | {
        "agentic.vary-stalled.txt": replace(brief(vary), stalled=2, direction=STRATEGIES[0]),
        "agentic.vary-restarts.txt": replace(brief(vary), stalled=4, direction=STRATEGIES[1], restarts=True),
        "common.repair.txt": brief(REPAIR),
        "common.repair.cpu.txt": on_cpu(brief(REPAIR, "cpu")),
        "common.everything.txt": brief(EVERYTHING),
    }


def shown(prompt: Prompt) -> str:
    """A prompt as a file."""
    return "\n".join(f"=== {message.role} ===\n{message.text}" for message in prompt.messages)


def main() -> None:
    """Write all of them anew, and remove those of operators that are gone."""
    os.environ["CUTLASS_PATH"] = "/nonexistent"  # as in tests: prompts name CUTLASS where it is installed
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for name, asked in briefs().items():
        (FOLDER / name).write_text(shown(render(asked)), encoding="utf-8")


if __name__ == "__main__":
    main()
