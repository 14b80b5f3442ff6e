from __future__ import annotations

import sys
from pathlib import Path

import pytest

from warpsmith.model.build import Backend
from warpsmith.model.errors import UsageError
from warpsmith.system.plugins import plugin, plugins


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with two plugins and a module that is none."""
    name = "registry_probe_engines"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for engine in ("steam", "diesel"):
        (folder / f"{engine}.py").write_text(f"class Engine:\n    name = {engine!r}\nPLUGIN = Engine()\n")
    (folder / "gears.py").write_text("TEETH = 12\n")
    monkeypatch.syspath_prepend(tmp_path)
    for module in [m for m in sys.modules if m.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    plugins.cache_clear()
    return name


def test_each_module_with_a_plugin_is_found_by_its_name(package: str) -> None:
    assert set(plugins(package)) == {"steam", "diesel"}
    assert plugin(package, "steam").name == "steam"


def test_adding_one_file_is_all_it_takes(package: str, tmp_path: Path) -> None:
    (tmp_path / package / "electric.py").write_text("class Engine:\n    name = 'electric'\nPLUGIN = Engine()\n")

    assert plugin(package, "electric").name == "electric"


def test_another_package_adds_its_own_and_replaces_none(package: str, tmp_path: Path) -> None:
    (tmp_path / "registry_probe_outsider.py").write_text(
        "class Engine:\n    def __init__(self, name): self.name = name; self.outside = True\n"
        "solar = Engine('solar')\nsteam = Engine('steam')\n"
    )
    metadata = tmp_path / "registry_probe-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: registry_probe\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        f"[{package}]\nsolar = registry_probe_outsider:solar\nsteam = registry_probe_outsider:steam\n"
    )

    assert plugin(package, "solar").outside
    assert not hasattr(plugin(package, "steam"), "outside")


def test_an_unknown_name_is_answered_with_the_known_ones(package: str) -> None:
    with pytest.raises(UsageError) as caught:
        plugin(package, "warp")

    assert str(caught.value) == "unknown registry_probe_engine 'warp'; known: diesel, steam."


def test_the_backends_are_plugins() -> None:
    found = plugins("warpsmith.backends")

    assert {"cpu", "cuda"} <= set(found)
    assert all(isinstance(backend, Backend) and backend.name == name for name, backend in found.items())
    with pytest.raises(UsageError, match=r"unknown backend 'fortran'; known: cpu, cuda"):
        plugin("warpsmith.backends", "fortran")
