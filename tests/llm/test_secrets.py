"""Where keys come from, and that they do not show."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from warpsmith.llm.model import ModelContext
from warpsmith.llm.secrets import Keyring, Secret
from warpsmith.model.errors import UsageError

KEY = "sk-0123456789abcdef"


def key_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "keys"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_secret_shows_only_when_asked() -> None:
    secret = Secret(KEY)

    assert KEY not in f"{secret} {secret!r} {[secret]}"
    assert secret.reveal() == KEY
    assert secret.redact(f"<{KEY}>") == "<[key]>"
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(secret)


def test_a_placeholder_does_not_cut_up_texts() -> None:
    assert Secret("none").redact("none of these") == "none of these"
    assert Secret("").redact("text") == "text"


def test_a_key_file_is_read_before_the_environment(tmp_path: Path) -> None:
    path = key_file(tmp_path, f"# my keys\n\nexport OPENAI_API_KEY='{KEY}'\nOPENAI_BASE_URL = http://here/v1\n")
    environ = {"OPENAI_API_KEY": "sk-of-the-environment", "ANTHROPIC_API_KEY": "sk-other-key"}

    for ring in (Keyring.load(environ, path), Keyring.load({**environ, "WARPSMITH_KEY_FILE": str(path)})):
        assert ring.secret("OPENAI_API_KEY").reveal() == KEY
        assert ring.secret("ANTHROPIC_API_KEY").reveal() == "sk-other-key"
        assert ring.plain("OPENAI_BASE_URL") == "http://here/v1"
        assert not ring.secret("NO_SUCH_KEY")


def test_surroundings_do_not_show_keys(tmp_path: Path) -> None:
    context = ModelContext.load({"OPENAI_API_KEY": KEY}, key_file(tmp_path, f"OTHER_API_KEY={KEY}"))

    assert KEY not in repr(context)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_key_file_that_others_can_read_is_not_read(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path, f"OPENAI_API_KEY={KEY}\n", mode)

    with pytest.raises(UsageError, match=f"can be read by other users; run `chmod 600 {path}`"):
        Keyring.load({}, path)


def test_a_key_file_that_is_none_is_named_without_its_content(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"line 2 of the key file .* is not NAME=value") as caught:
        Keyring.load({}, key_file(tmp_path, f"A=b\n{KEY}\n"))
    assert KEY not in str(caught.value)

    with pytest.raises(UsageError, match=r"cannot read the key file .*: No such file"):
        Keyring.load({}, tmp_path / "missing")


@pytest.mark.parametrize("value", ["sk-one two", "sk-line\nbreak", "sk-ünicode"])
def test_a_key_with_characters_that_no_key_has_is_named_without_its_content(value: str) -> None:
    with pytest.raises(UsageError, match="OPENAI_API_KEY has characters") as caught:
        Keyring.load({"OPENAI_API_KEY": value}).secret("OPENAI_API_KEY")

    assert value not in str(caught.value)


def test_all_keys_at_once_are_masked() -> None:
    ring = Keyring.load({"MY_API_KEY": KEY, "GH_TOKEN": "ghp-abcdefgh", "HOME": "/home/someone"})

    assert ring.redact(f"{KEY} ghp-abcdefgh /home/someone") == "[key] [key] /home/someone"
