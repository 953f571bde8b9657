"""Hard PDFs of the shared corpus: what must be found, and what must not."""

from __future__ import annotations

import functools
import unicodedata
from pathlib import Path

import pytest

from pipelines.extract import extract
from pipelines.extract.ocr.languages import installed_languages
from pipelines.types import Extracted

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not beside this checkout"),
]
needs_tesseract = pytest.mark.skipif(installed_languages() is None, reason="tesseract is not installed")


@functools.cache
def _read(name: str) -> Extracted:
    return extract(CORPUS / name)


def _words(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("sample-files__habibi.pdf", "حَبيبي habibi حَبيبي"),
        ("docling__right_to_left_01.pdf", "تحسين الإنتاجية وحل المشكلات"),
        ("pdfjs__ArabicCIDTrueType.pdf", "انواع الخطوط العربية"),
        ("pypdf__multilang.pdf", "مرحبا بالعالم"),
        ("tika__testExtraSpaces.pdf", "Here is some formatted text"),
        ("pdfplumber__issue-71-duplicate-chars.pdf", "计算机科学与技术"),
        ("pdfminer__issue-625-identity-cmap.pdf", "Faktura nr FV 1/2021"),
        ("pdfplumber__senate-expenditures.pdf", "LEGISLATIVE CORRESPONDENT"),
        ("pdfplumber__scotus-transcript-p1.pdf", "argument before the Supreme Court of the United States at 1:01 p.m."),
        ("unstructured__copy-protected.pdf", "LayoutParser: A Unified Toolkit for Deep Learning"),
        ("tika__testPDFPackage.pdf", "Multiple files are bound together in this PDF Package"),
        ("tika__testPDF_bad_page_303226.pdf", "records of such disposals and file periodic reports"),
        ("sample-files__multicolumn.pdf", "ac, adipiscing vitae, felis. Curabitur dictum gravida mauris."),
        pytest.param("unstructured__pdf-with-ocr-text.pdf", "National Sugar", marks=needs_tesseract),
    ],
)
def test_phrases(name: str, phrase: str) -> None:
    assert _words(phrase) in _words(_read(name).text)


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


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("sample-files__with-attachment.pdf", ["image.png"]),
        ("tika__testPDFPackage.pdf", ["PDF1.pdf", "PDF2.pdf"]),
    ],
)
def test_files_within(name: str, files: list[str]) -> None:
    assert [one.name for one in _read(name).attachments] == files


def test_only_bad_layers_are_read_again() -> None:
    assert [page.reason for page in _read("unstructured__a1977-backus-p21.pdf").pages] == ["ocr-layer"]
    assert [page.reason for page in _read("unstructured__pdf-with-ocr-text.pdf").pages] == ["poor-layer"]


def test_the_outline_of_a_long_book_makes_its_headings() -> None:
    extracted = _read("unstructured__DA-619p.pdf")
    headings = [block.text for block in extracted.blocks if block.kind == "heading" and block.page == 100]
    assert headings == ["Caridin's Journal", "The History of the Chantry: Chapter 1"]
    assert not any(block.text == "100" for block in extracted.blocks)
    assert len(extracted.pages) == 619
