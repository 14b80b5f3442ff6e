"""The commands of `warpsmith bench`. Each imports its own module when it runs; see `searching`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from warpsmith.cli.app import app, reported
from warpsmith.cli.options import (
    Allow,
    AsJson,
    Backend,
    BaseUrl,
    Choice,
    Cost,
    DeviceOfFiles,
    DeviceTime,
    Entry,
    Family,
    KeyFile,
    MaxTokens,
    Model,
    Parallel,
    PrecisionOption,
    Prices,
    Profiles,
    Repairs,
    RequestTime,
    StopAt,
    Tag,
    Temperature,
    Time,
    TimeBudget,
    Tokens,
    Trials,
    Tuning,
)


class Format(StrEnum):
    """How tables are written."""

    TABLE = "table"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"
    LATEX = "latex"


class Part(StrEnum):
    """Which table."""

    SPEED = "speed"
    SEARCH = "search"
    FAST = "fast"
    TASKS = "tasks"
    PAIRS = "pairs"
    UNVERIFIED = "unverified"
    EMPTY = "empty"
    FAILED = "failed"
    CELLS = "cells"


class _RunUnlessNamed(TyperGroup):
    """`bench SUITE` means `bench run SUITE`: what is no name of a command are the words of a bench."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command in front that was left out."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


bench_app = typer.Typer(
    cls=_RunUnlessNamed,
    help="Compare methods on a suite of tasks: `warpsmith bench SUITE`, which is short for `bench run SUITE`.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(bench_app, name="bench", short_help="Compare methods on a suite of tasks.")

BenchArgument = Annotated[
    str, typer.Argument(metavar="BENCH", help="A bench's folder, or results.json as it was published.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to write it.")]
Unverified = Annotated[bool, typer.Option("--unverified", help="Count winners that nobody has verified, too.")]
Devices = Annotated[
    str, typer.Option(metavar="auto|cpu|cuda:0,…", help="Where to run; the work is shared among several like devices.")
]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Try cells again that failed.")]


@bench_app.command("run", short_help="Run a bench, or go on with it.")
def bench_run(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="SUITE|TASK",
            help="warpsmith-100, warpsmith-fused, kernelbench:PATH/level1, a folder; tasks as softmax, conv2d*, "
            "SUITE/NAME, or files. @small behind it takes small workloads.",
        ),
    ],
    methods: Annotated[
        str, typer.Option(metavar="A,B", help="Methods or files; cupilot-no-roofline is one with a part taken away.")
    ] = "cupilot",
    proposers: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="As --proposer of optimize; repeatable for those with commas.  [auto]"),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Runs of each, with seeds of their own.")] = 1,
    family: Family = None,
    tag: Tag = None,
    trials: Trials = None,
    time: Time = None,
    tokens: Tokens = None,
    cost: Cost = None,
    device_time: DeviceTime = None,
    devices: Devices = "auto",
    backend: Backend = "",
    precision: PrecisionOption = None,
    time_budget: TimeBudget = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the first repeat.")] = 0,
    parallel: Parallel = None,
    repairs: Repairs = None,
    stop_at: StopAt = None,
    profiles: Profiles = True,
    tuning: Tuning = True,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Verify winners; others do not count.")] = True,
    compile_baseline: Annotated[
        bool | None,
        typer.Option(
            "--compile-baseline/--no-compile-baseline", help="Measure winners against torch.compile.  [on a GPU]"
        ),
    ] = None,
    choice: Choice = "weighted",
    model: Model = None,
    base_url: BaseUrl = "",
    key_file: KeyFile = "",
    prices: Prices = "",
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    request_time: RequestTime = None,
    retry_failed: RetryFailed = False,
    out: Annotated[
        str, typer.Option(metavar="FOLDER", help="Where it is kept.  [default: under benches/, by what is asked]")
    ] = "",
    json: AsJson = False,
) -> None:
    """Run every method with every proposer on every task, each with the same budget, and verify the winners.

    The same command goes on where an earlier one was broken off. Exit status: 0 all is done, 1 some of it failed,
    2 nothing could be done, 130 interrupted.
    """
    with reported():
        from warpsmith.cli.bench import RunRequest
        from warpsmith.cli.bench import run as work
        from warpsmith.propose.making import Options

        status = work(
            RunRequest(
                words=tuple(words),
                families=tuple(family or ()),
                tags=tuple(tag or ()),
                methods=methods,
                proposers=tuple(proposers or ("auto",)),
                repeats=repeats,
                seed=seed,
                trials=trials,
                seconds=time,
                tokens=tokens,
                usd=cost,
                device_seconds=device_time,
                devices=devices,
                backend=backend,
                precision=precision,
                timing_budget_s=time_budget,
                parallel=parallel,
                repairs=repairs,
                stop_at=stop_at,
                profile=profiles,
                tune=tuning,
                verify=verify,
                compile_baseline=compile_baseline,
                retry_failed=retry_failed,
                out=out,
                options=Options(
                    base_url=base_url,
                    key_file=key_file,
                    prices=prices,
                    temperature=temperature,
                    max_tokens=max_tokens,
                    request_s=request_time,
                    choice=choice,
                    models=tuple(model or ()),
                ),
                as_json=json,
            )
        )
    raise typer.Exit(status)


@bench_app.command("resume", short_help="Go on with a bench.")
def bench_resume(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The bench's folder.")],
    devices: Devices = "",
    retry_failed: RetryFailed = False,
    json: AsJson = False,
) -> None:
    """Go on with a bench where it was broken off. What is finished is not repeated."""
    with reported():
        from warpsmith.cli.bench import ResumeRequest
        from warpsmith.cli.bench import resume as work

        status = work(ResumeRequest(folder, devices, retry_failed, as_json=json))
    raise typer.Exit(status)


@bench_app.command("show", short_help="Show the results of a bench.")
def bench_show(
    bench: BenchArgument,
    format: FormatOption = Format.TABLE,
    part: Annotated[Part | None, typer.Option(help="One table only; CSV writes the cells unless told.")] = None,
    unverified: Unverified = False,
) -> None:
    """Show how fast the winners of each method are, how they were found, and who wins where."""
    with reported():
        from warpsmith.cli.benchshow import ShowRequest, show

        status = show(ShowRequest(bench, format.value, part.value if part else "", unverified))
    raise typer.Exit(status)


@bench_app.command("compare", short_help="Show two benches side by side.")
def bench_compare(
    a: BenchArgument, b: BenchArgument, format: FormatOption = Format.TABLE, unverified: Unverified = False
) -> None:
    """Compare B with A: the methods they share, on the tasks that both have done."""
    with reported():
        from warpsmith.cli.benchshow import CompareRequest, compare

        status = compare(CompareRequest(a, b, format.value, unverified))
    raise typer.Exit(status)


@bench_app.command("judge", short_help="Judge other systems' kernels.")
def bench_judge(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Kernels named after tasks (softmax.cu, 23_Softmax.py), or folders."),
    ],
    suite: Annotated[str, typer.Option(metavar="SUITE", help="Whose tasks they are for, e.g. warpsmith-100.")],
    claims: Annotated[
        str, typer.Option(metavar="FILE", help="What is claimed: CSV with the columns task and speedup.")
    ] = "",
    against: Annotated[str, typer.Option(metavar="eager|compile", help="What the claims compare with.")] = "eager",
    device: DeviceOfFiles = "auto",
    entry: Entry = "",
    allow: Allow = "",
    precision: PrecisionOption = None,
    time_budget: TimeBudget = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Verify what is valid.")] = True,
    out: Annotated[
        str, typer.Option(metavar="FOLDER", help="Keep verdicts and certificates there, and go on with what is there.")
    ] = "",
    json: AsJson = False,
) -> None:
    """Judge published kernels like any other, and say which of the claims about them hold on this machine.

    Exit status: 0 all are right and all claims hold, 1 not so, 2 nothing could be judged.
    """
    with reported():
        from warpsmith.cli.benchjudge import JudgeRequest
        from warpsmith.cli.benchjudge import judge as work

        status = work(
            JudgeRequest(
                files=tuple(files),
                suite=suite,
                claims=claims,
                against=against,
                device=device,
                entry=entry,
                allow=allow,
                precision=precision,
                timing_budget_s=time_budget,
                verify=verify,
                out=out,
                as_json=json,
            )
        )
    raise typer.Exit(status)
