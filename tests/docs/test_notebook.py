"""The notebook in `examples` runs from the first cell to the last, in a kernel of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="the test of the notebook needs `pip install .[notebook]`")
nbformat = pytest.importorskip("nbformat", reason="the test of the notebook needs `pip install .[notebook]`")

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    small = notebook.cells[2]
    small.source = small.source.replace('"rows": 512', '"rows": 64')
    notebook.cells[4].source = notebook.cells[4].source.replace("trials=4", "trials=1").replace("0.2", "0.05")
    notebook.cells[6].source = notebook.cells[6].source.replace("512", "64")
    client = nbclient.NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.create_kernel_manager()
    assert client.km is not None
    assert client.km.kernel_spec is not None
    client.km.kernel_spec.argv[0] = sys.executable  # this Python, whatever kernels are installed

    client.execute()

    table = notebook.cells[5].outputs[0]["data"]["text/plain"]
    assert "ok" in table
