"""TensorBoard: event files in the folder `tensorboard` of the run, or below the one that "tensorboard:DIR" names.

The files are written by the `tensorboard` package alone: torch stays out of the process.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from warpsmith.loggers.run_logger import LoggedEnd, LoggedRun, LoggedTrial, LoggerPlugin

_FOLDER = "tensorboard"


class TensorboardLogger:
    """Logs scalars for each trial, and parameters and the best kernel as text."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._last = 0
        self._writer: Any = None

    def begin(self, run: LoggedRun) -> int:
        """Begin another file beside the earlier ones; TensorBoard reads them as one."""
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        place = Path(self._folder) / run.name if self._folder else run.folder / _FOLDER
        self._last = _last_step(place)
        self._writer = EventFileWriter(str(place))
        self._text("parameters", "\n".join(f"    {name} = {value}" for name, value in run.parameters.items()))
        return self._last

    def trial(self, trial: LoggedTrial) -> None:
        """One point of each scalar; the step is the number of the trial."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in trial.metrics.items()]
        self._last = max(self._last, trial.number)
        self._writer.add_event(Event(wall_time=trial.at, step=trial.number, summary=Summary(value=values)))

    def end(self, end: LoggedEnd) -> None:
        """Keep the best kernel as text: TensorBoard has no files."""
        for path in end.artifacts:
            if path.stem == "best":
                lines = path.read_text(encoding="utf-8").splitlines()
                self._text(path.name, "\n".join(f"    {line}" for line in lines))
        self._text("stopped", end.reason)
        self._writer.close()

    def _text(self, tag: str, text: str) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        kind = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
        words = TensorProto(dtype=DT_STRING, string_val=[text.encode("utf-8", "replace")], tensor_shape=shape)
        value = Summary.Value(tag=tag, metadata=kind, tensor=words)
        self._writer.add_event(Event(wall_time=time.time(), step=self._last, summary=Summary(value=[value])))


def _last_step(folder: Path) -> int:
    """The last trial in the files of earlier sittings."""
    if not folder.is_dir():
        return 0
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    known = EventAccumulator(str(folder))
    known.Reload()
    return max((point.step for point in known.Scalars("valid")), default=0) if "valid" in known.Tags()["scalars"] else 0


PLUGIN = LoggerPlugin("tensorboard", "tensorboard", TensorboardLogger)
