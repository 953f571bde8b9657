"""A dozen hard files of the corpus that lies beside a developer's checkout."""

from __future__ import annotations

import functools
import unicodedata
from pathlib import Path

import pytest

from bench.web import load_pages, score
from pipelines.errors import PermanentError
from pipelines.extract import extract
from pipelines.extract.ocr import installed_languages

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not beside this checkout"),
]
needs_tesseract = pytest.mark.skipif(installed_languages() is None, reason="tesseract is not installed")


@functools.cache
def _words(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("pdfplumber__2023-06-20-PV.pdf", "COMITÉ DE DÉMOLITION PROCÈS-VERBAL"),
        ("pdfminer__simple1.pdf", "Hello"),
        ("unstructured__rotated-page-90.pdf", "Second line of text here"),
        ("docling__right_to_left_01.pdf", "تحسين الإنتاجية وحل المشكلات"),
        ("tika__testPDF_bad_page_303226.pdf", "Drug Enforcement Administration"),
        pytest.param("ocrmypdf__c02-22.pdf", "tip-toeing along a path amongst the trees", marks=needs_tesseract),
        pytest.param("ocrmypdf__typewriter.png", "linzen", marks=needs_tesseract),
        ("unstructured__example-steelJIS-datasheet-utf-16.html", "Japanese Steels and Alloys"),
        ("unstructured__fake-html-cp1252.html", "Die schöne Frau hat einen Kaffee mit Kuchen gegessen"),
        ("trafilatura__jungle.world-Imperialismus-Phantom.html", "war noch nie so viel von Imperialismus die Rede"),
        ("tika__footnotes.docx", "snoska"),
        ("docling__Strict.docx", "Some text"),
        ("made__docx_named.pdf", "Lorem ipsum"),
        ("tika__testEXCEL_dateFormats.xlsx", "2018-09-20"),
        ("tika__testEXCEL.xls", "Numbers and their Squares"),
        ("tika__testODFwithOOo3.odt", "Apache Tika Test Document"),
        ("tika__testEPUB.epub", "This is the text for chapter One"),
        ("unstructured__mime-word-encoded-subject.eml", "Simple email with ☸☿ Unicode subject"),
        ("unstructured__fake-text-utf-16-be.txt", "This is a test document"),
        ("tika__english.cp500.txt", "IntelliStation POWER"),
        ("tika__testRTFWordPadCzechCharacters.rtf", "Část svitku s textem Knihy Izajáš"),
        ("tika__complex.mbox", "No you cannot raise this event yourself"),
        ("markitdown__equations.docx", "For $m=1$"),
        ("docling__csv-inconsistent-header.csv", "| a | b | c | d |"),
        ("unstructured__fake-email-attachment.msg", "fake-attachment.txt"),
        pytest.param("tika__testOCR.docx", "Happy New Year 2003!", marks=needs_tesseract),
    ],
)
def test_phrases(name: str, phrase: str) -> None:
    assert _words(phrase) in _words(extract(CORPUS / name).text)


@pytest.mark.parametrize(
    ("name", "attachments"),
    [
        ("tika__EmbeddedPDF.docx", ["oleObject1.pdf"]),
        ("tika__test_recursive_embedded.docx", ["embed1.zip"]),
        ("unstructured__fake-email-attachment.msg", ["fake-attachment.txt"]),
    ],
)
def test_embedded_documents(name: str, attachments: list[str]) -> None:
    assert [one.name for one in extract(CORPUS / name).attachments] == attachments


def test_what_surrounds_a_page_is_left_out() -> None:
    text = extract(CORPUS / "tika__boilerplate.html").text
    assert "the real meat of the page" in text
    assert "boilerplate" not in text
    pages = list(load_pages(CORPUS))
    assert len(pages) >= 11
    assert score("ours", pages).f1 >= 0.9


def test_pages_keep_their_numbers_and_their_layer() -> None:
    assert [page.reason for page in extract(CORPUS / "unstructured__a1977-backus-p21.pdf").pages] == ["ocr-layer"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("sample-files__libreoffice-writer-password.pdf", "encrypted"),
        ("pdfminer__aes-256-r6.pdf", "encrypted"),
        ("tika__testWORD_protected_passtika.docx", "encrypted"),
        ("unstructured__fake-encrypted.msg", "encrypted"),
        ("ocrmypdf__invalid.pdf", "corrupt"),
        ("made__half_written.docx", "corrupt"),
        ("tika__testODTnotaZipFile.odt", "corrupt"),
        ("pdfplumber__empty.pdf", "empty_file"),
        ("ocrmypdf__no_contents.pdf", "no_text"),
        ("tika__testWORD.doc", "unsupported_format"),
        ("paperless__simple.zip", "unsupported_format"),
    ],
)
def test_refusals(name: str, code: str) -> None:
    with pytest.raises(PermanentError) as caught:
        extract(CORPUS / name)
    assert caught.value.code == code
