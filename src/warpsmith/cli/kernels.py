"""`warpsmith kernels list` and `warpsmith kernels show NAME`: the kernels that come with Warpsmith."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.text import Text

from warpsmith.cli import cards
from warpsmith.cli.json_documents import print_document
from warpsmith.cli.options import AsJson, Family
from warpsmith.cli.terminal import print_columns
from warpsmith.kernels.collection import CollectedKernel, DeviceState, collection, find_kernel
from warpsmith.kernels.facts import KernelState
from warpsmith.model import numbers
from warpsmith.model.errors import UsageError


def kernels_list(family: Family = None, json: AsJson = False) -> int:
    """List the kernels of the collection, with what is known of them on each device.

    Only a kernel that is verified on the GPU that is there is used by `warpsmith.load`.
    """
    families = sorted({kernel.task.family for kernel in collection()})
    if unknown := [each for each in family or () if each not in families]:
        raise UsageError(f"no kernel is of the family {unknown[0]!r}; the families are {', '.join(families)}.")
    found = [kernel for kernel in collection() if not family or kernel.task.family in family]
    if json:
        print_document({"kernels": [_document(kernel) for kernel in found]})
        return 0
    console = cards.console()
    rows = [_row(kernel, state) for kernel in found for state in kernel.states()]
    print_columns(console, rows, optional=("lines", "form", "class", "device"), right=("speedup", "of limit", "lines"))
    counted = [state.state for kernel in found for state in kernel.states()]
    total = [f"{counted.count(each)} {each.value}" for each in KernelState if each in counted]
    cards.say(console, f"\n{len(found)} kernels: {'; '.join(total)}. Speedup: over PyTorch eager.")
    return 0


def kernels_show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A task with a kernel: matmul, warpsmith-100/matmul.")],
    json: AsJson = False,
) -> int:
    """Show a kernel of the collection: what is known of it, then its source."""
    kernel = find_kernel(name)
    if json:
        print_document({**_document(kernel), "source": kernel.source})
        return 0
    console = cards.console()
    cards.say(console, Text.assemble((kernel.task.title, "bold"), f"  {kernel.task.description}"))
    for line in _lines(kernel):
        cards.say(console, line)
    sys.stdout.write(f"\n{kernel.source.rstrip()}\n")
    return 0


def _document(kernel: CollectedKernel) -> dict[str, object]:
    return {
        "task": kernel.task.title,
        "family": kernel.task.family,
        "form": kernel.form,
        "precision": kernel.precision,
        "candidate": kernel.candidate.id,
        "lines": len(kernel.source.splitlines()),
        "headers": kernel.headers,
        "devices": [
            {
                "device": state.device,
                "state": state.state,
                "verified": state.state is KernelState.VERIFIED,
                "date": state.date,
                "versions": dict(state.versions),
                "facts": state.facts,
            }
            for state in kernel.states()
            if state.device
        ],
    }


def _row(kernel: CollectedKernel, state: DeviceState) -> dict[str, str]:
    facts = state.facts
    return {
        "kernel": kernel.task.title,
        "form": kernel.form or "–",
        "class": kernel.precision,
        "device": state.device or "–",
        "speedup": _speedup(state) or "–",
        "of limit": numbers.whole_percent(facts.share) if facts and facts.share is not None else "–",
        "state": state.state.value,
        "lines": str(len(kernel.source.splitlines())),
    }


def _speedup(state: DeviceState) -> str:
    facts = state.facts
    if facts is None or facts.speedup is None:
        return ""
    between = f" [{numbers.ratio(facts.interval[0])}, {numbers.ratio(facts.interval[1])}]" if facts.interval else ""
    return f"{numbers.ratio(facts.speedup)}x{between}"


def _lines(kernel: CollectedKernel) -> list[str]:
    lines = [
        f"Precision class {kernel.precision}; form: {kernel.form or 'written for this task'}; "
        f"{len(kernel.source.splitlines())} lines; headers: {', '.join(kernel.headers) or 'none'}."
    ]
    for state in kernel.states():
        facts = state.facts
        if facts is None:
            lines.append("Not judged on any device.")
            continue
        known = [f"{state.device}: {state.state.value}"]
        if facts.speedup is not None:
            earlier = "an earlier text reached " if state.state is KernelState.CHANGED else ""
            known.append(f"{earlier}{_speedup(state)} PyTorch eager")
        if facts.share is not None:
            known.append(f"{numbers.whole_percent(facts.share)} of the hardware limit")
        if facts.latency_ms:
            known.append(f"{', '.join(numbers.number(ms) for ms in facts.latency_ms)} ms")
        known += [text for text in (facts.reason, facts.objection) if text]
        versions = ", ".join(f"{name} {version}" for name, version in state.versions)
        lines.append(f"{'; '.join(known)}. Judged {state.date or 'at an unknown date'} with {versions or 'unknown'}.")
        if facts.lineage:
            lines.append(f"Lineage: {facts.lineage}")
    return lines
