"""Settings: from the environment and the home's file; what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import ConfigurationError
from worker.settings import load_settings


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gristmill.env").write_text("GRISTMILL_CHUNK_TOKENS=300\nGRISTMILL_TENANT=file\nOTHER=x\n")
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path))
    monkeypatch.setenv("GRISTMILL_TENANT", "environment")
    found = load_settings()
    assert (found.chunk_tokens, found.tenant, found.home) == (300, "environment", tmp_path)
    assert load_settings(chunk_tokens=400).chunk_tokens == 400


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("WATCH", "/a:/b c", "watch", (Path("/a"), Path("/b c"))),
        ("WATCH", '["/a", "/b:c"]', "watch", (Path("/a"), Path("/b:c"))),
        ("IGNORE", "*.bak:draft*", "ignore", ("*.bak", "draft*")),
        ("FETCH_ALLOW", "intranet.example, fd00::/8", "fetch_allow", ("intranet.example", "fd00::/8")),
        ("WEBHOOKS", '{"shop": {"auth": "bearer"}}', "webhooks", {"shop": {"auth": "bearer"}}),
    ],
)
def test_lists_and_objects(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, value: str, field: str, expected: object
) -> None:
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path))
    monkeypatch.setenv(f"GRISTMILL_{variable}", value)
    assert getattr(load_settings(), field) == expected


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("CHUNK_TOKENS", "many", "GRISTMILL_CHUNK_TOKENS"),
        ("CHUNK_TOKENS", "1", "GRISTMILL_CHUNK_TOKENS"),
        ("WEBHOOKS", "{broken", "GRISTMILL_WEBHOOKS"),
        ("WATCH", "[broken", "GRISTMILL_WATCH"),
        ("SCHEMA_NAME", 'x"; drop', "GRISTMILL_SCHEMA_NAME"),
        ("EMBEDDER", "word2vec", "GRISTMILL_EMBEDDER"),
        ("CHUNK_TOKEN", "256", "GRISTMILL_CHUNK_TOKENS"),
        ("CHUNK_OVERLAP_TOKENS", "200", "chunk_overlap_tokens"),
    ],
)
def test_what_is_wrong_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, value: str, named: str
) -> None:
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path))
    monkeypatch.setenv(f"GRISTMILL_{variable}", value)
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert named in str(caught.value)


def test_an_unknown_key_in_the_file_is_named_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gristmill.env").write_text("GRISTMILL_OCR_LANGUAGE=deu\n")
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match="OCR_LANGUAGES"):
        load_settings()


def test_openais_own_variable_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    assert load_settings().openai_api_key == "sk-test"
