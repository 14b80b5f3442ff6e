"""Weights & Biases: one W&B run for each run, in the project "warpsmith", or the one that "wandb:PROJECT" names.

WANDB_MODE=offline writes files in the run's folder, which `wandb sync` sends later; without a key it is the same. Each
sitting of a resumed run writes a folder with the same id: `wandb sync --append` adds them to one W&B run.
"""

from __future__ import annotations

import netrc
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from warpsmith.loggers.run_logger import LoggedEnd, LoggedRun, LoggedTrial, LoggerPlugin

_PROJECT = "warpsmith"


class WandbLogger:
    """Logs through the SDK of Weights & Biases; nothing of the user's machine or code is collected."""

    def __init__(self, project: str) -> None:
        self._project = project or os.environ.get("WANDB_PROJECT") or _PROJECT
        self._run: Any = None

    def begin(self, run: LoggedRun) -> int | None:
        """Begin or continue the W&B run with the id of this run."""
        import wandb

        mode: Any = os.environ.get("WANDB_MODE") or ("online" if _has_key() else "offline")
        self._run = wandb.init(
            project=self._project,
            id=run.id,
            name=run.name,
            dir=os.environ.get("WANDB_DIR") or str(run.folder),
            resume="allow",
            config=dict(run.parameters),
            settings=wandb.Settings(
                mode=mode,
                silent=True,
                console="off",
                disable_git=True,
                save_code=False,
                x_disable_stats=True,
                x_disable_meta=True,
            ),
        )
        self._run.define_metric("trial")
        self._run.define_metric("*", step_metric="trial")
        if mode == "online":
            return int(self._run.summary.get("trial", 0) or 0)
        # What an earlier sitting wrote offline cannot be asked for.
        earlier = [each for each in Path(self._run.dir).parents[1].glob(f"*-{run.id}") if each.is_dir()]
        return None if len(earlier) > 1 else 0

    def trial(self, trial: LoggedTrial) -> None:
        """One row; the axis is the number of the trial, because verdicts come in any order."""
        self._run.log({"trial": trial.number, **trial.metrics})

    def end(self, end: LoggedEnd) -> None:
        """Keep the artifacts and close the W&B run."""
        import wandb

        self._run.summary["stopped"] = end.reason
        if end.artifacts:
            kept = wandb.Artifact(f"warpsmith-{self._run.id}", type="kernel")
            for path in end.artifacts:
                kept.add_file(str(path))
            self._run.log_artifact(kept)
        self._run.finish(exit_code=0 if end.finished else 1)


def _has_key() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
    with suppress(OSError, netrc.NetrcParseError):
        return netrc.netrc().authenticators(host) is not None
    return False


PLUGIN = LoggerPlugin("wandb", "wandb", WandbLogger)
