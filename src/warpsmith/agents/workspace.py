"""The folders that a user opened to agents: every path that an agent names is resolved and must lie in one of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from warpsmith.model.errors import RunError, TaskError, UsageError
from warpsmith.model.text import printable
from warpsmith.run_log.log import LOG_FILE
from warpsmith.search.open_run import RUNS
from warpsmith.tasks.suites import KERNELBENCH, SHIPPED, resolve_task

_PREFIX = f"{KERNELBENCH}:"


class Workspace:
    """The named folders. A relative path is taken from the first of them."""

    def __init__(self, folders: Sequence[str | Path]) -> None:
        self.folders = tuple(dict.fromkeys(self._opened(folder) for folder in folders))
        if not self.folders:
            raise UsageError("name at least one folder that agents may use: --folder DIR.")

    def path(self, name: str) -> Path:
        """The path that an agent names, without links; refused where it leaves the folders."""
        if not name or name != printable(name) or "\n" in name or "\t" in name:
            raise UsageError(f"{name[:100]!r} is no path; name a file or folder in {self._named()}.")
        given = Path(name)
        if ".." in given.parts:
            raise UsageError(f"{name} goes up with `..`, which is refused; write the path from {self.folders[0]}.")
        try:
            found = (self.folders[0] / given).resolve()
        except (OSError, RuntimeError, ValueError):  # a circle of links
            raise UsageError(f"{name} cannot be resolved; name a file or folder in {self._named()}.") from None
        if not any(found.is_relative_to(folder) for folder in self.folders):
            raise UsageError(
                f"{name} leads out of the folders that the user opened ({self._named()}); use a path in one of them, "
                "or ask the user to add `--folder` to `warpsmith mcp`."
            )
        return found

    def file(self, name: str) -> Path:
        """An existing regular file."""
        found = self.path(name)
        if not found.is_file():
            raise UsageError(f"there is no file {name} in {self._named()}; write the file first.")
        return found

    def new_file(self, name: str, suffix: str, *, replace: bool) -> Path:
        """The path of a file to write."""
        found = self.path(name)
        if found.suffix != suffix:
            raise UsageError(f"{name} must end in {suffix}; choose another name.")
        if found.exists() and not (replace and found.is_file()):
            raise UsageError(f"{name} exists already; choose another name, or pass replace=true to overwrite a file.")
        return found

    def task(self, spec: str) -> str:
        """A task as the commands take it: of a suite, or a file in the folders."""
        if spec.startswith(_PREFIX):
            within = self.path(spec.removeprefix(_PREFIX))
            return str(self.path(resolve_task(f"{_PREFIX}{within}")))
        file, mark, name = spec.partition("::")
        bare = file.partition("@")[0]
        if not mark and (bare.partition("/")[0] in SHIPPED or bare.isidentifier()):
            found = resolve_task(spec)
            if found != spec:
                return found
        if not mark and not self.path(file).is_file():
            raise TaskError(
                f"there is no task {spec}; name a Python file in {self._named()}, or a task that list_tasks shows."
            )
        return f"{self.file(file)}{mark}{name}"

    def run(self, name: str) -> Path:
        """The folder of an existing run, given by its path or by its name under `runs`."""
        found = next((each for each in self._run_paths(name) if (each / LOG_FILE).is_file()), None)
        if found is None:
            raise RunError(f"there is no run {name} in {self._named()}; list_runs shows the runs, ask starts one.")
        self._check_run(found)
        return found

    def new_run(self, name: str) -> Path:
        """The folder for a run that does not exist yet."""
        found = self.path(name)
        if found.exists():
            raise UsageError(f"{name} exists already; leave out the task to go on with a run, or name another folder.")
        return found

    def has_run(self, name: str) -> bool:
        """True if the name is that of a run."""
        return any((each / LOG_FILE).is_file() for each in self._run_paths(name))

    def _run_paths(self, name: str) -> tuple[Path, ...]:
        return (self.path(name), *(() if Path(name).is_absolute() else (self.path(f"{RUNS}/{name}"),)))

    def _check_run(self, folder: Path) -> None:
        """Refuse a run with a link in it: judging writes there."""
        if any(entry.is_symlink() for entry in folder.iterdir()):
            raise RunError(f"{folder} holds a symbolic link, which may lead out of it; remove the link first.")

    def _named(self) -> str:
        return ", ".join(map(str, self.folders))

    @staticmethod
    def _opened(folder: str | Path) -> Path:
        found = Path(folder).expanduser().resolve()
        if not found.is_dir():
            raise UsageError(f"there is no folder {folder}; give --folder an existing one.")
        return found
