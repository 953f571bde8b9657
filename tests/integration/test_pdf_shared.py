"""The structure of PDFs of the shared corpus: headings, tables, what must be there once."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from pipelines.extract import extract
from pipelines.types import Extracted

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not beside this checkout"),
]


@functools.cache
def _read(name: str) -> Extracted:
    return extract(CORPUS / name)


def test_a_shadow_is_read_once() -> None:
    text = _read("pdfplumber__issue-842-example.pdf").text
    assert text.count("ANHUI ANLI") == 1
    assert text.count("年年度报告") == 1
    assert text.count("300218") == 1


def test_a_table_over_pages_has_its_rows() -> None:
    text = _read("pdfplumber__WARN-Report-for-7-1-2015-to-03-25-2016.pdf").text
    row = "| 06/22/2015 | 03/25/2016 | 07/01/2015 | Maxim Integrated Product | San Jose | 150 | Closure Permanent |"
    assert row in text
    assert text.count("| Closure Permanent |") > 100


def test_a_table_header_is_no_title() -> None:
    extracted = _read("pdfplumber__senate-expenditures.pdf")
    assert extracted.title is None
    assert extracted.blocks[0].text.startswith("| DOCUMENT NO. | DATE POSTED | PAYEE NAME |")


def test_the_outline_of_a_long_book_makes_its_headings() -> None:
    extracted = _read("unstructured__DA-619p.pdf")
    headings = [block.text for block in extracted.blocks if block.kind == "heading" and block.page == 100]
    assert headings == ["Caridin's Journal", "The History of the Chantry: Chapter 1"]
    assert not any(block.text == "100" for block in extracted.blocks)
    assert len(extracted.pages) == 619
