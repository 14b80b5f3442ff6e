"""MLflow: one MLflow run for each run, in the experiment of MLFLOW_EXPERIMENT_NAME, else "warpsmith".

"mlflow:URI" names the tracking server or store, else MLFLOW_TRACKING_URI does.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from warpsmith.loggers.run_logger import LoggedEnd, LoggedRun, LoggedTrial, LoggerPlugin

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

TAG = "warpsmith.run"
_EXPERIMENT = "warpsmith"
_LONGEST = 500  # characters of a parameter


class MlflowLogger:
    """Logs through the client of MLflow, so that the active run of the user's own program stays as it is."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._run = ""
        self._client: MlflowClient

    def begin(self, run: LoggedRun) -> int:
        """Find the MLflow run of this run by its tag, or create it."""
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self._client = client = MlflowClient(tracking_uri=self._uri or None)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or _EXPERIMENT
        experiment = client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else client.create_experiment(name)
        found = client.search_runs([number], filter_string=f"tags.`{TAG}` = '{run.id}'", max_results=1)
        if found:
            self._run = found[0].info.run_id
            client.update_run(self._run, status="RUNNING")
            return max((point.step for point in client.get_metric_history(self._run, "valid")), default=0)
        self._run = client.create_run(number, run_name=run.name, tags={TAG: run.id}).info.run_id
        parameters = [Param(key, str(value)[:_LONGEST]) for key, value in run.parameters.items()]
        client.log_batch(self._run, params=parameters)
        return 0

    def trial(self, trial: LoggedTrial) -> None:
        """One point of each metric; the step is the number of the trial."""
        from mlflow.entities import Metric

        at = int(1000 * trial.at)
        self._client.log_batch(
            self._run, metrics=[Metric(name, value, at, trial.number) for name, value in trial.metrics.items()]
        )

    def end(self, end: LoggedEnd) -> None:
        """Keep the artifacts and say how the run ended."""
        for path in end.artifacts:
            self._client.log_artifact(self._run, str(path))
        self._client.set_tag(self._run, "warpsmith.stopped", end.reason)
        self._client.set_terminated(self._run, "FINISHED" if end.finished else "KILLED")


PLUGIN = LoggerPlugin("mlflow", "mlflow", MlflowLogger)
