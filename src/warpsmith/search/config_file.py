"""`config.toml` in a run's folder: the options of the run as they were resolved, under the names of the command line.

`warpsmith optimize --config RUN/config.toml` begins the same run once more. Nothing is read back from the file unless a
user names it; a resumed run takes its options from the log.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

from warpsmith.run_log.events import RunConfig
from warpsmith.search.options import BY_HAND, RunOptions
from warpsmith.search.start import OFFLINE
from warpsmith.system.files import put_in_place

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
