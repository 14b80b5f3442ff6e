"""`RunOptions`: what a caller asks of a run, on the command line and in Python. `open_run` resolves it.

`config.toml` in the folder of a run has the options as they were resolved, under the names of the command line.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import RunError, UsageError
from warpsmith.model.task import Precision
from warpsmith.proposers.choose import ProposerOptions
from warpsmith.run_log.events import Budget, RunConfig
from warpsmith.search.budget import check_budget
from warpsmith.search.start import OFFLINE
from warpsmith.system.files import put_in_place

BASELINES = ("eager", "compile")
BY_HAND = "person"
"""The proposer of a run that is driven by `ask` and `tell`."""


@dataclass(frozen=True)
class RunOptions:
    """The options of a run. None means "not given": a new run takes the default, a resumed run keeps what it has."""

    method: str | None = None  # a name, or a file with a method; cupilot
    proposer: str | None = None  # "auto", "template", "openai:MODEL", "command:CMD", …
    trials: int | None = None  # 45
    seconds: float | None = None  # of wall time; no limit
    tokens: int | None = None
    usd: float | None = None
    device_seconds: float | None = None  # of building and judging
    device: str | None = None  # "auto", "cpu", "cuda", "cuda:1"
    backend: str | None = None  # "cpu", "cuda", "triton"; the language of the device
    engine: str | None = None  # where evaluations run: "local", "ray", "ray://HOST:PORT", "http://HOST:PORT"
    precision: Precision | None = None  # the task's own
    baselines: tuple[str, ...] | None = None  # ("eager",); "compile" may follow
    timing_budget_s: float | None = None  # per workload and baseline
    seed: int | None = None  # 0
    parallel: int | None = None  # proposals in flight; what suits the device
    repairs: int | None = None  # attempts to repair a failed kernel; the method's own number
    stop_at: float | None = None  # the share of the roofline at which the run stops; 0 for never
    roofline: bool | None = None  # False leaves this part of the method out
    retrieval: bool | None = None  # the same
    alignment: bool | None = None  # the same
    failures: bool | None = None  # the same
    population: int | None = None  # kernels kept; the method's own number
    epoch_size: int | None = None  # trials of one epoch, for methods with epochs; sets `trials`
    start: str | Candidate | None = None  # a kernel to start from: a file, or "auto" or "plain" for an offline one
    accept_uncalibrated: bool = False  # search on a task although some wrong results pass its checks
    profile: bool = True  # profile kernels that become parents
    tune: bool = True  # tune the best kernel's tunables at the end
    remember: bool = True  # add what the run found out to the pool
    models: ProposerOptions = field(default_factory=ProposerOptions)

    def budget(self, known: Budget | None = None) -> Budget:
        """The limits of the run: those given here, the others from `known` or the defaults."""
        known = known or Budget()
        names = ("trials", "seconds", "tokens", "usd", "device_seconds")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return check_budget(Budget(**{**vars(known), **given}))

    def checked_baselines(self) -> tuple[str, ...]:
        """The baselines to time against; the first is PyTorch eager."""
        names = self.baselines or ("eager",)
        unknown = [name for name in names if name not in BASELINES]
        if unknown:
            raise UsageError(f"unknown baseline {unknown[0]!r}; known: {', '.join(BASELINES)}.")
        if names[0] != "eager":
            raise UsageError("the baselines must begin with eager: kernels are ranked by their speedup over it.")
        return names


def precision_of(config: RunConfig) -> Precision | None:
    """The precision that a run was given; None for the task's own."""
    try:
        return Precision(config.precision) if config.precision else None
    except ValueError:
        known = ", ".join(each.value for each in Precision)
        raise RunError(f"the run names an unknown precision {config.precision[:50]!r}; known: {known}.") from None


CONFIG_FILE = "config.toml"
_PARTS = ("roofline", "retrieval", "alignment", "failures")  # of a method, that can be left out


def config_text(config: RunConfig, method: str, options: RunOptions) -> str:
    """The file for a run; `method` is the method's name, which also says what was left out of it."""
    budget, models = config.budget, options.models
    name, *left_out = method.split("-no-")
    file = Path(options.method or "")
    values: dict[str, object] = {
        "task": config.task,
        "method": str(file.resolve()) if file.suffix == ".py" else name,
        "proposer": config.proposer if config.proposer != BY_HAND else "",  # who answers with `tell`
        "trials": budget.trials,
        "time": budget.seconds,
        "tokens": budget.tokens,
        "cost": budget.usd,
        "device-time": budget.device_seconds,
        "device": config.device,
        "backend": config.backend,
        "engine": config.engine if config.engine != "local" else "",
        "precision": config.precision,
        "baseline": ",".join(config.settings.baselines),
        "time-budget": config.settings.timing_budget_s,
        "seed": config.seed,
        "parallel": config.parallel,
        "repairs": config.repairs,
        "start": config.start if config.start in ("", *OFFLINE) else _existing(config.start),
        "population": options.population,
        "stop-at": config.enough_share or 0.0,
        **{part: False for part in _PARTS if part in left_out},
        "accept-uncalibrated": config.accept_uncalibrated or None,
        "profile": options.profile,
        "tune": options.tune,
        "pool": options.remember,
        "base-url": models.base_url if "@" not in urlsplit(models.base_url).netloc else "",  # no password in a file
        "key-file": models.key_file,
        "prices": models.prices,
        "temperature": models.temperature,
        "max-tokens": models.max_tokens,
        "effort": models.effort,
        "structured": models.structured or None,
        "request-time": models.request_s,
        "step-trials": models.step_trials,
        "step-time": models.step_s,
        "step-tokens": models.step_tokens,
        "choice": models.choice,
        "model": list(models.models),
    }
    lines = [f"{key} = {_toml(value)}" for key, value in values.items() if value not in (None, "", [])]
    return "# The options of this run. Begin it again: warpsmith optimize --config FILE\n" + "\n".join(lines) + "\n"


def write_config(folder: Path, config: RunConfig, method: str, options: RunOptions) -> None:
    """Write the file into the folder of a run."""
    put_in_place(folder / CONFIG_FILE, config_text(config, method, options).encode(), mode=0o644)


def _existing(file: str) -> str:
    """The whole path of a file; "" for a kernel that was given as text, which has only a name."""
    return str(Path(file).resolve()) if Path(file).is_file() else ""


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
