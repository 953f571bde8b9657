"""Every file of the corpus beside a developer's checkout, read as `gristmill extract` reads it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.formats import CORPUS, Expectation, load_expectations, shortcomings
from bench.web import load_pages, score
from pipelines.extract.ocr import installed_languages
from worker.cli.extract import describe
from worker.settings import Settings

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not beside this checkout"),
    pytest.mark.skipif(installed_languages() is None, reason="tesseract is not installed"),
    pytest.mark.timeout(300),
]


def expectation(row: Expectation) -> Any:
    """A case of its own for each file; one that falls short is expected to, for the cause given."""
    marks = [pytest.mark.xfail(reason=row.short_of, strict=True)] if row.short_of else []
    return pytest.param(row, id=row.file, marks=marks)


def test_every_file_has_its_expectation() -> None:
    assert {row.file for row in load_expectations()} == {path.name for path in CORPUS.iterdir()} - {"INDEX.tsv"}


@pytest.mark.parametrize("wanted", [expectation(row) for row in load_expectations()])
def test_a_file_is_read_as_it_should_be(wanted: Expectation) -> None:
    assert shortcomings(wanted, describe(CORPUS / wanted.file, wanted.file, Settings())) == []


def test_web_pages_are_told_from_what_surrounds_them() -> None:
    pages = list(load_pages(CORPUS))
    assert len(pages) >= 11
    assert score("ours", pages).f1 >= 0.9


@pytest.mark.parametrize(
    ("name", "code"),
    [("paperless__simple.zip", "unsupported_format"), ("unstructured__book-war-and-peace-1p.txt", None)],
)
def test_the_command_says_so_with_its_exit_code(name: str, code: str | None, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "worker.cli", "extract", str(CORPUS / name), "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    answer = json.loads(ran.stdout)
    assert set(answer) == {"state", "error", "text", "pages", "chunks", "metadata", "children", "seconds"}
    if code:
        assert (ran.returncode, answer["state"], answer["error"]["code"]) == (3, "failed", code)
    else:
        assert (ran.returncode, answer["state"], answer["error"]) == (0, "done", None)
        assert answer["chunks"][0]["content"] in answer["text"]
