"""The commands that search: optimize, ask, tell, step, runs, show, tune. Each imports its own module when it runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from warpsmith.cli.app import app, named, reported
from warpsmith.cli.options import (
    AsJson,
    Backend,
    BaseUrl,
    Choice,
    Cost,
    DeviceHere,
    DeviceOfFiles,
    DeviceOfSearch,
    DeviceTime,
    Entry,
    Family,
    FileArgument,
    Fresh,
    KeyFile,
    MaxTokens,
    Model,
    Parallel,
    PrecisionOption,
    Prices,
    Profiles,
    Repairs,
    RequestTime,
    RunArgument,
    StopAt,
    Tag,
    TaskArgument,
    Temperature,
    Time,
    TimeBudget,
    Tokens,
    Trials,
    Tuning,
)


class Part(StrEnum):
    """What `show` can print by itself."""

    CODE = "code"
    DIFF = "diff"
    PROMPT = "prompt"
    REPLY = "reply"


@app.command(short_help="Evolve a faster kernel for an operator.")
def optimize(
    task: Annotated[
        str | None,
        typer.Argument(metavar="TASK", help="A task file, file.py::name, or suite/name; none with --resume."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="How to search, or a file with one's own method.  [cupilot]"),
    ] = None,
    proposer: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Who proposes: auto, template, openai:MODEL, anthropic:MODEL, several as A:M=2,B:N=1, command:CMD, "
            "replay:RUN.  [auto]",
        ),
    ] = None,
    trials: Trials = None,
    time: Time = None,
    tokens: Tokens = None,
    cost: Cost = None,
    device_time: DeviceTime = None,
    device: DeviceOfSearch = None,
    backend: Backend = "",
    precision: PrecisionOption = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="NAMES", help="What to compare with: eager, or eager,compile.  [eager]")
    ] = None,
    time_budget: TimeBudget = None,
    run: Annotated[str, typer.Option(metavar="DIR", help="The new run's folder.  [default: under runs/]")] = "",
    resume: Annotated[
        str,
        typer.Option(
            metavar="RUN",
            help="Go on with this run. Limits, --proposer, --device and --parallel may be given anew; how it searches "
            "and measures stays.",
        ),
    ] = "",
    seed: Annotated[int | None, typer.Option(metavar="N", help="For everything that is drawn.  [default: 0]")] = None,
    parallel: Parallel = None,
    repairs: Repairs = None,
    stop_at: StopAt = None,
    choice: Choice = "weighted",
    model: Model = None,
    roofline: Annotated[
        bool | None, typer.Option("--roofline/--no-roofline", help="Guide by the roofline.  [default: roofline]")
    ] = None,
    retrieval: Annotated[
        bool | None, typer.Option("--retrieval/--no-retrieval", help="Show similar kernels.  [default: retrieval]")
    ] = None,
    alignment: Annotated[
        bool | None,
        typer.Option("--alignment/--no-alignment", help="Align strategies with code.  [default: alignment]"),
    ] = None,
    profiles: Profiles = True,
    tuning: Tuning = True,
    keep: Annotated[bool, typer.Option("--pool/--no-pool", help="Add what was found out to the pool.")] = True,
    base_url: BaseUrl = "",
    key_file: KeyFile = "",
    prices: Prices = "",
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    request_time: RequestTime = None,
    out: Annotated[
        str, typer.Option(metavar="FILE|DIR", help="The best kernel's source, or its bundle.  [RUN/best.*, RUN/best]")
    ] = "",
    json: AsJson = False,
) -> None:
    """Evolve a kernel: propose, compile, check, time, keep the best; until a budget is spent.

    Without a model the offline catalogue proposes. Ctrl-C closes the run; --resume goes on with it.
    Exit status: 0 a valid kernel was found, 1 none was, 2 nothing could be done or --out was not written, 130
    interrupted.
    """
    with reported():
        from warpsmith.cli.optimize import Request
        from warpsmith.cli.optimize import run as work
        from warpsmith.propose.making import Options

        options = Options(
            base_url=base_url,
            key_file=key_file,
            prices=prices,
            temperature=temperature,
            max_tokens=max_tokens,
            request_s=request_time,
            choice=choice,
            models=tuple(model or ()),
        )
        status = work(
            Request(
                task=named(task) if task else None,
                method=method,
                proposer=proposer,
                trials=trials,
                seconds=time,
                tokens=tokens,
                usd=cost,
                device_seconds=device_time,
                device=device,
                backend=backend,
                precision=precision,
                baselines=baseline,
                timing_budget_s=time_budget,
                run=run,
                resume=resume,
                seed=seed,
                parallel=parallel,
                repairs=repairs,
                stop_at=stop_at,
                roofline=roofline,
                retrieval=retrieval,
                alignment=alignment,
                profile=profiles,
                tune=tuning,
                keep=keep,
                out=out,
                options=options,
                as_json=json,
            )
        )
    raise typer.Exit(status)


@app.command(short_help="Get the next brief of a run, to answer it yourself.")
def ask(
    what: Annotated[str, typer.Argument(metavar="RUN|TASK", help="A run, or a task file to start one with.")],
    run: Annotated[str, typer.Option(metavar="DIR", help="With a TASK: the new run's folder.")] = "",
    method: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="With a TASK: how to search.  [evoengineer-full]")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="auto|cpu|cuda[:n]", help="With a TASK: where to run.  [auto]")
    ] = None,
    backend: Annotated[str, typer.Option(metavar="cuda|cpu|triton", help="With a TASK: the kernels' language.")] = "",
    trials: Annotated[int | None, typer.Option(metavar="N", help="With a TASK: proposals at most.  [45]")] = None,
    time_budget: TimeBudget = None,
    stop_at: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="SHARE", help="With a TASK: enough of the speed of light; 0 never is.  [0.95]"),
    ] = None,
    json: AsJson = False,
) -> None:
    """Print the next brief: everything a coding agent or a person needs to propose a kernel.

    The brief is on standard output. Answer it with `warpsmith tell`. Exit status: 1 if there is nothing to ask.
    """
    with reported():
        from warpsmith.cli.agent import AskRequest
        from warpsmith.cli.agent import ask as work

        status = work(AskRequest(named(what), run, method, device, backend, trials, time_budget, stop_at, as_json=json))
    raise typer.Exit(status)


@app.command(short_help="Answer a brief with a kernel.")
def tell(
    run: RunArgument,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A kernel, or a reply to be read (.md, .txt, - for standard input).")
    ],
    brief: Annotated[int | None, typer.Option(metavar="N", help="Which brief, if several are open.")] = None,
    later: Annotated[
        bool, typer.Option("--later", help="Keep it; `warpsmith step` judges it, here or elsewhere.")
    ] = False,
    device: DeviceHere = None,
    json: AsJson = False,
) -> None:
    """Hand in a kernel and have it judged; the run remembers it, and the next brief knows the verdict.

    Exit status: 0 valid (or kept for later), 1 not valid, 2 it could not be judged.
    """
    with reported():
        from warpsmith.cli.agent import TellRequest
        from warpsmith.cli.agent import tell as work

        status = work(TellRequest(run, file, brief, later, device, as_json=json))
    raise typer.Exit(status)


@app.command(short_help="Judge what is pending in a run.")
def step(run: RunArgument, device: DeviceHere = None, json: AsJson = False) -> None:
    """Judge what `tell --later` left: a run's folder can travel to a GPU machine and back."""
    with reported():
        from warpsmith.cli.agent import StepRequest
        from warpsmith.cli.agent import step as work

        status = work(StepRequest(run, device, as_json=json))
    raise typer.Exit(status)


@app.command(short_help="List runs.")
def runs(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Where they are.  [default: runs]")] = "",
    json: AsJson = False,
) -> None:
    """List the runs in a folder, the latest last."""
    with reported():
        from warpsmith.cli.history import runs as work

        status = work(folder, as_json=json)
    raise typer.Exit(status)


@app.command(short_help="Show a run, or one of its candidates.")
def show(
    run: RunArgument,
    id: Annotated[str, typer.Argument(metavar="ID", help="A trial's number, a candidate's id, or best.")] = "",
    only: Annotated[Part | None, typer.Option(help="Only this, as it is, on standard output.")] = None,
) -> None:
    """Show a run's trials; with ID one of them: verdict and code, or its diff to its parent, prompt or reply."""
    with reported():
        from warpsmith.cli.history import ShowRequest
        from warpsmith.cli.history import show as work

        status = work(ShowRequest(run, id, only.value if only else ""))
    raise typer.Exit(status)


@app.command(short_help="Find good values for a kernel's tunables.")
def tune(
    task: TaskArgument,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A kernel with lines such as `// tune: BLOCK = 128, 256, 512`.")
    ],
    budget: Annotated[int, typer.Option(min=1, metavar="N", help="Points to try at most.")] = 64,
    device: DeviceOfFiles = "auto",
    precision: PrecisionOption = None,
    time_budget: TimeBudget = None,
    seed: Annotated[int, typer.Option(metavar="N", help="For points that are drawn.")] = 0,
    out: Annotated[str, typer.Option(metavar="FILE", help="Write the source with the best values first.")] = "",
    json: AsJson = False,
) -> None:
    """Search the values a kernel declares tunable, with no model; bad points are discarded early.

    Exit status: 0 a valid point was found, 1 none was, 2 nothing could be judged.
    """
    with reported():
        from warpsmith.cli.tune import Request
        from warpsmith.cli.tune import run as work

        status = work(Request(named(task), file, budget, device, precision, time_budget, seed, out, as_json=json))
    raise typer.Exit(status)


@app.command(short_help="Show why a kernel is not faster.")
def profile(
    task: TaskArgument,
    file: FileArgument,
    device: DeviceOfFiles = "auto",
    entry: Entry = "",
    precision: PrecisionOption = None,
    out: Annotated[str, typer.Option(metavar="FILE", help="Write the roofline picture (.svg or .png).")] = "",
    time_budget: TimeBudget = None,
    fresh: Fresh = False,
    json: AsJson = False,
) -> None:
    """Show a kernel's bottleneck, the numbers that prove it, what to try, and where it stands under the roofline.

    Exit status: 0 done, 1 the kernel is not valid, 2 it could not be judged.
    """
    with reported():
        from warpsmith.cli.profile import Request
        from warpsmith.cli.profile import run as work

        status = work(Request(named(task), file, device, entry, precision, out, time_budget, fresh, as_json=json))
    raise typer.Exit(status)


@app.command(short_help="Keep and find what earlier runs found out.")
def pool(
    action: Annotated[str, typer.Argument(metavar="add|list|search", help="What to do.")],
    target: Annotated[str, typer.Argument(metavar="RUN|TASK", help="The run to add, or the task to search for.")] = "",
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda[:n]", help="For which device to search.")] = "auto",
    backend: Annotated[str, typer.Option(metavar="cuda|cpu|triton", help="For which language to search.")] = "",
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Records to show at most.")] = 10,
    catalogue: Annotated[bool, typer.Option("--catalogue", help="List the catalogue's own entries too.")] = False,
    json: AsJson = False,
) -> None:
    """The pool of kernels, strategies and their measured effects, grown from finished runs."""
    with reported():
        from warpsmith.cli.pool import Request
        from warpsmith.cli.pool import run as work

        wanted = named(target) if action == "search" and target else target
        status = work(Request(action, wanted, device, backend, limit, catalogue, as_json=json))
    raise typer.Exit(status)


suite_app = typer.Typer(help="Suites of tasks that come with Warpsmith.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(suite_app, name="suite", short_help="List the tasks that come with Warpsmith.")


@suite_app.command("list", short_help="List the tasks of suites.")
def suite_list(
    suites: Annotated[
        list[str] | None,
        typer.Argument(metavar="SUITE", help="warpsmith-100, warpsmith-fused, or kernelbench:PATH/level1.  [all]"),
    ] = None,
    name: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only these tasks.")] = None,
    family: Family = None,
    tag: Tag = None,
    json: AsJson = False,
) -> None:
    """List tasks with their family, sizes and precision classes."""
    with reported():
        from warpsmith.cli.suite import Request
        from warpsmith.cli.suite import run as work

        status = work(
            Request(
                suites=tuple(suites or ()),
                names=tuple(name or ()),
                families=tuple(family or ()),
                tags=tuple(tag or ()),
                as_json=json,
            )
        )
    raise typer.Exit(status)
