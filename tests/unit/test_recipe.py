"""The same bytes cost nothing, unless what belongs to them has changed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from uuid import uuid4

import pytest

from worker.ingest import recipe
from worker.ledger import Claim
from worker.settings import load_settings

CLAIM = Claim(
    1, "t", "upload:a", "upload", 2, 1, 0, uuid4(), b"", None, 1, {"team": "blue", "a": 1}, None, "a.txt", None, 0
)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"metadata": {"a": 1, "team": "blue"}}, True),
        ({"attempts": 3, "version": 9, "uri": "upload:b"}, True),
        ({"metadata": {"team": "red", "a": 1}}, False),
        ({"language": "french"}, False),
        ({"filename": "b.txt"}, False),
    ],
)
def test_what_makes_a_document_another_one(tmp_path: Path, change: dict[str, object], same: bool) -> None:
    settings = load_settings(home=tmp_path)
    first = recipe(settings, "model", CLAIM, ".txt")
    assert (recipe(settings, "model", dataclasses.replace(CLAIM, **change), ".txt") == first) is same  # type: ignore[arg-type]


def test_settings_model_and_suffix_count(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    found = {
        recipe(settings, "model", CLAIM, ".txt"),
        recipe(settings, "another", CLAIM, ".txt"),
        recipe(settings, "model", CLAIM, ".md"),
        recipe(load_settings(home=tmp_path, chunk_tokens=300), "model", CLAIM, ".txt"),
        recipe(load_settings(home=tmp_path, ocr_languages="deu"), "model", CLAIM, ".txt"),
    }
    assert len(found) == 5
    assert recipe(settings, "model", CLAIM, ".TXT") == recipe(settings, "model", CLAIM, ".txt")


def test_where_pages_are_read_does_not_count(tmp_path: Path) -> None:
    here, there = (load_settings(home=tmp_path, ocr_inline_pages=pages) for pages in (0, 1000))
    assert recipe(here, "model", CLAIM, ".pdf") == recipe(there, "model", CLAIM, ".pdf")
