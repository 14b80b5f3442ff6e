"""Options and arguments that several commands take, each defined once.

The name of an option is that of the command's parameter, unless it is given here. An option of one command is defined
with that command.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from warpsmith.model.task import Precision

_DEVICE = "auto|cpu|cuda[:n]"

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, all else on standard error.")]
JsonLines = Annotated[
    bool,
    typer.Option("--json", help="JSON on standard output, one line per result; all else on standard error."),
]

# --- the kernel and the device ---

TaskArgument = Annotated[
    str, typer.Argument(metavar="TASK", help="A task file, file.py::name, or a task of a suite (softmax, SUITE/NAME).")
]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="The kernel.")]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's folder, its name under runs/, or last for the latest.")
]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Execute the task file of a run or bench that was not created here; read it first."),
]
DeviceOfFiles = Annotated[str, typer.Option("--device", metavar=_DEVICE, help="Where to run; auto follows the files.")]
DeviceHere = Annotated[
    str | None, typer.Option("--device", metavar=_DEVICE, help="Where to judge.  [default: the run's own]")
]
DeviceOfSearch = Annotated[
    str | None, typer.Option("--device", metavar=_DEVICE, help="Where to run; auto takes a GPU if there is one.")
]
Backend = Annotated[
    str, typer.Option(metavar="cuda|cpu|triton", help="The kernels' language.  [default: the device's own]")
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="local|ray|ray://HOST:PORT|http://HOST:PORT",
        help="Where evaluations run: this machine, a Ray cluster, a server.  [default: local, or the run's own]",
    ),
]
Entry = Annotated[
    str,
    typer.Option(
        metavar="CALL",
        help="Call this function of a Python file or torch extension: NAME, or NAME(ARG, ...) with names of the "
        "task and numbers.",
    ),
]
Entries = Annotated[
    str,
    typer.Option(metavar="FILE", help="A call for each file: CSV with the columns file and entry; --entry for others."),
]
Baseline = Annotated[
    str, typer.Option("--baseline", metavar="NAMES", help="What to compare with: eager, compile, or eager,compile.")
]
Allow = Annotated[
    str,
    typer.Option(
        metavar="LIBS", help="Libraries the kernels may call, besides those the task allows: cublas, cudnn, torch."
    ),
]
PrecisionOption = Annotated[
    Precision | None,
    typer.Option("--precision", help="Judge in this precision class instead of the task's own."),
]
TimeBudget = Annotated[
    float | None,
    typer.Option(min=0.0, metavar="SECONDS", help="Time for timing, per workload and baseline.  [default: 1]"),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Judge again even if the verdict is in the cache, and keep the new one.")
]
AcceptUncalibrated = Annotated[
    bool,
    typer.Option(
        "--accept-uncalibrated",
        help="Take a task although wrong results of some kind pass its checks; results say calibrated: no.",
    ),
]
Seeds = Annotated[int | None, typer.Option(min=1, metavar="N", help="Random input sets per workload.  [default: 2]")]
Timeout = Annotated[
    float | None,
    typer.Option(min=0.001, metavar="SECONDS", help="Longest time of one call of a kernel.  [default: 10]"),
]

# --- which tasks of suites ---

Family = Annotated[list[str] | None, typer.Option(metavar="FAMILY", help="Only these families.")]
Tag = Annotated[list[str] | None, typer.Option(metavar="TAG", help="Only tasks with all of these tags.")]

# --- how a run searches, and its limits ---

Trials = Annotated[
    int | None, typer.Option(metavar="N", help="Proposals of a run at most, repairs included.  [default: 45]")
]
Time = Annotated[float | None, typer.Option(metavar="SECONDS", help="Wall time of a run at most.")]
Tokens = Annotated[int | None, typer.Option(metavar="N", help="Tokens of a run at most.")]
Cost = Annotated[float | None, typer.Option(metavar="USD", help="US dollars of a run at most.")]
DeviceTime = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Time building and judging in a run at most.")
]
Parallel = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Proposals under way at once.  [default: 4 on a GPU, 2 on a CPU]"),
]
Repairs = Annotated[
    int | None,
    typer.Option(
        min=0, metavar="N", help="Times a failed kernel is sent back with its error.  [default: the method's]"
    ),
]
PopulationSize = Annotated[
    int | None, typer.Option("--population", min=1, metavar="N", help="Kernels kept.  [default: the method's]")
]
EpochSize = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Trials of one epoch, in place of --trials (cupilot: 4 epochs).")
]
StopAt = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        metavar="SHARE",
        help="End a run at this share of the roofline, in the worst workload; 0 never.  [default: 0.95]",
    ),
]
Start = Annotated[
    str,
    typer.Option(
        metavar="FILE|auto|plain",
        help="A kernel to start from: judged first, spends no trial; auto: the first one written offline, plain: one "
        "without optimisations.",
    ),
]
Profiles = Annotated[bool, typer.Option("--profile/--no-profile", help="Profile kernels that become parents.")]
Tuning = Annotated[
    bool, typer.Option("--tune/--no-tune", help="Try values of the best kernel's tunables at the end of a run.")
]

# --- models ---

Choice = Annotated[str, typer.Option(metavar="weighted|ucb", help="How to choose among several models.")]
Model = Annotated[
    list[str] | None,
    typer.Option(metavar="ROLE=SPEC", help="Another model for one role, e.g. translator=openai:MODEL; repeatable."),
]
BaseUrl = Annotated[str, typer.Option(metavar="URL", help="An OpenAI-compatible or Anthropic endpoint.")]
KeyFile = Annotated[str, typer.Option(metavar="FILE", help="Keys as NAME=value lines, readable by you only.")]
Prices = Annotated[str, typer.Option(metavar="FILE", help="A price table (TOML) for cost accounting.")]
Temperature = Annotated[float | None, typer.Option(metavar="T", help="Of the models; not sent if not given.")]
MaxTokens = Annotated[int | None, typer.Option(metavar="N", help="Of one reply.")]
Effort = Annotated[
    str, typer.Option(metavar="low|medium|high", help="Effort of reasoning, where the model has it.  [the model's own]")
]
Structured = Annotated[
    bool, typer.Option("--structured", help="Ask models for JSON by a schema where a reply holds no kernel.")
]
RequestTime = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Longest a model may take for a reply, or may pause in one.  [default: 600]"),
]
StepTrials = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Kernels that an agent may have evaluated in one step.  [default: 8]"),
]
StepTime = Annotated[
    float | None, typer.Option(min=1.0, metavar="SECONDS", help="Time of one step of an agent.  [default: 1800]")
]
StepTokens = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Tokens of one step of the agent over a model.  [default: 400000]"),
]


_NOT_IN_A_FILE = ("config", "help", "resume")


def read_config(context: typer.Context, file: str) -> str:
    """Make the values of a file the defaults of the command's options; the keys are the names of the options."""
    if not file:
        return file
    try:
        given = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as refused:
        raise typer.BadParameter(f"{file} cannot be read ({refused.strerror})") from None
    except ValueError as wrong:  # not TOML, or not text
        raise typer.BadParameter(f"{file} is not TOML: {wrong}") from None
    known = {_key(each): each for each in context.command.params}
    for name in _NOT_IN_A_FILE:
        known.pop(name, None)
    defaults: dict[str, Any] = {}
    for key, value in given.items():
        parameter = known.get(key.replace("_", "-"))
        if parameter is None:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise typer.BadParameter(f"{file}: unknown key {key!r}; {hint}Known keys: {', '.join(sorted(known))}")
        if isinstance(value, dict) or (isinstance(value, list) and not _takes_several(parameter)):
            raise typer.BadParameter(f"{file}: {key} takes one value, not {type(value).__name__}")
        several = _takes_several(parameter) and not isinstance(value, list)
        defaults[parameter.name] = [value] if several else value
    context.default_map = {**(context.default_map or {}), **defaults}
    return file


def _key(parameter: Any) -> str:
    """The name of an option as it is written, without its hyphens; for an argument the parameter's name."""
    longest = max(parameter.opts, key=len, default=parameter.name)
    return str(longest).lstrip("-").replace("_", "-")


def _takes_several(parameter: Any) -> bool:
    return bool(parameter.multiple if hasattr(parameter, "multiple") else False) or parameter.nargs == -1


ConfigFile = Annotated[
    str,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=read_config,
        help="Options from a TOML file, e.g. a run's config.toml; those given here come first.",
    ),
]
