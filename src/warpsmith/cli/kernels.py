"""`warpsmith kernels list` and `warpsmith kernels show NAME`: the kernels that come with Warpsmith."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated

import typer
from rich.text import Text

from warpsmith.cli import cards
from warpsmith.cli.json_documents import print_document
from warpsmith.cli.options import AsJson, Family
from warpsmith.cli.terminal import print_columns
from warpsmith.kernels.collection import CollectedKernel, DeviceState, collection, find_kernel
from warpsmith.kernels.facts import KernelFacts, KernelState, MeasuredRatio
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
    pairs = [(kernel, state) for kernel in found for state in kernel.states()]
    rows = [_row(kernel, state) for kernel, state in pairs]
    bare = [row | {"kernel": kernel.task.name} for row, (kernel, _) in zip(rows, pairs, strict=True)]
    print_columns(
        console,
        rows,
        optional=("lines", "form", "class", "device"),
        folding="state",
        right=("over eager", "over compile", "of limit", "lines"),
        shorter=[("suites", bare), ("intervals", [_without_intervals(row) for row in bare])],
    )
    counted = [state.state for _, state in pairs]
    total = [f"{counted.count(each)} {each.value}" for each in KernelState if each in counted]
    cards.say(console, f"\n{len(found)} kernels: {'; '.join(total)}. Speedups over PyTorch eager and torch.compile.")
    timed = sorted({state.pytorch.date[:10] for _, state in pairs if state.pytorch})
    if timed:
        cards.say(console, f"torch.compile was timed apart from the kernels, on {', '.join(timed)}.")
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
                "speedup": {
                    "eager": state.over_eager,
                    "compile": state.over_compile,
                    "best_of_pytorch": state.over_best_of_pytorch,
                },
                "best_of_pytorch": state.best_of_pytorch,
                "pytorch_timed": _timed(state),
                "share_of_floor": state.facts.share if state.facts else None,
                "certificate": _certificate(state),
                "lineage": state.facts.lineage if state.facts else "",
                "facts": state.facts,
            }
            for state in kernel.states()
            if state.device
        ],
    }


def _timed(state: DeviceState) -> dict[str, object] | None:
    """When and with what torch.compile was timed."""
    if state.pytorch is None or not state.best_of_pytorch:
        return None
    return {"date": state.pytorch.date, "versions": state.pytorch.versions, "precision": state.pytorch.precision}


def _certificate(state: DeviceState) -> dict[str, object] | None:
    """What the certificate says; None if there is none."""
    facts = state.facts
    if facts is None or facts.verified is None:
        return None
    return {
        "verified": facts.verified,
        "any_shape": facts.any_shape,
        "error_share_of_limit": facts.error,
        "objection": facts.objection,
    }


def _row(kernel: CollectedKernel, state: DeviceState) -> dict[str, str]:
    facts = state.facts
    return {
        "kernel": kernel.task.title,
        "form": kernel.form or "–",
        "class": kernel.precision,
        "device": state.device or "–",
        "over eager": _ratio(state.over_eager),
        "over compile": _ratio(state.over_compile),
        "of limit": numbers.whole_percent(facts.share) if facts and facts.share is not None else "–",
        "state": state.state.value,
        "lines": str(len(kernel.source.splitlines())),
    }


def _without_intervals(row: Mapping[str, str]) -> dict[str, str]:
    return {**row, **{name: row[name].partition(" [")[0] for name in ("over eager", "over compile")}}


def _ratio(found: MeasuredRatio | None) -> str:
    if found is None:
        return "–"
    return f"{numbers.ratio(found.value)}x [{numbers.ratio(found.low)}, {numbers.ratio(found.high)}]"


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
        known = [f"{state.device}: {state.state.value}", *_speedups(state)]
        if facts.share is not None:
            known.append(f"{numbers.whole_percent(facts.share)} of the hardware limit")
        if facts.latency_ms:
            known.append(f"{', '.join(numbers.number(ms) for ms in facts.latency_ms)} ms")
        known += [facts.reason] if facts.reason else []
        versions = ", ".join(f"{name} {version}" for name, version in state.versions)
        lines.append(f"{'; '.join(known)}. Judged {state.date or 'at an unknown date'} with {versions or 'unknown'}.")
        lines.append(_certificate_line(facts))
        if facts.lineage:
            lines.append(f"Lineage: {facts.lineage}")
    return lines


def _speedups(state: DeviceState) -> list[str]:
    """The speedups over each form of PyTorch, and over the faster one."""
    if state.over_eager is None:
        return []
    earlier = "an earlier text reached " if state.state is KernelState.CHANGED else ""
    said = [f"{earlier}{_ratio(state.over_eager)} PyTorch eager"]
    if state.over_compile and state.over_best_of_pytorch and state.pytorch:
        form = "torch.compile" if state.best_of_pytorch == "compile" else "eager"
        timed = f"(torch.compile timed on {state.pytorch.date[:10]})"
        said.append(f"{_ratio(state.over_compile)} torch.compile {timed}")
        said.append(f"{numbers.ratio(state.over_best_of_pytorch.value)}x the faster of both, {form}")
    return said


def _certificate_line(facts: KernelFacts) -> str:
    if facts.verified is None:
        return "No certificate."
    if not facts.verified:
        return f"Certificate: not verified: {facts.objection}"
    sizes = "right at other sizes too" if facts.any_shape else "at the sizes of its workloads only"
    error = f"; its largest error is {numbers.whole_percent(facts.error)} of the limit" if facts.error else ""
    return f"Certificate: verified, {sizes}{error}."
