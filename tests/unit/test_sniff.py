from __future__ import annotations

import io
import zipfile
from pathlib import Path

import docx
import pytest
from PIL import Image

from pipelines import sniff as kinds
from pipelines.sniff import sniff


def _zip(members: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _docx() -> bytes:
    buffer = io.BytesIO()
    docx.Document().save(buffer)
    return buffer.getvalue()


def _image(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (8, 8), 255).save(buffer, kind)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.docx", b"%PDF-1.4\n", kinds.PDF),
        ("a.txt", b"junk before\n%PDF-1.7\n", kinds.PDF),
        ("a.pdf", _docx(), kinds.DOCX),
        ("a.txt", _image("PNG"), "image/png"),
        ("a", _image("TIFF"), "image/tiff"),
        ("a", _image("WEBP"), "image/webp"),
        ("a", _image("BMP"), "image/bmp"),
        ("a", _image("GIF"), "image/gif"),
        ("a.bin", _zip({"mimetype": kinds.EPUB, "META-INF/container.xml": ""}), kinds.EPUB),
        ("a.bin", _zip({"mimetype": kinds.ODT}), kinds.ODT),
        ("a.xlsx", _zip({"[Content_Types].xml": "", "xl/workbook.bin": ""}), kinds.XLSB),
        ("a.zip", _zip({"notes.txt": "hello"}), kinds.ZIP),
        ("a.docx", _docx()[:900], kinds.BROKEN),
        ("a.odt", b"this is no archive", kinds.BROKEN),
        ("a.rtf", b"{\\rtf1 hello}", kinds.RTF),
        ("a.txt", b"<!DOCTYPE html><html><body>x</body></html>", kinds.HTML),
        ("a", "\ufeff<html><body>x</body></html>".encode("utf-16"), kinds.HTML),
        ("a.html", b"just words", kinds.HTML),
        ("a.md", b"# Title\n", kinds.MARKDOWN),
        ("a.csv", b"a,b\n1,2\n", kinds.CSV),
        ("a.tsv", b"a\tb\n", kinds.TSV),
        ("a.json", b'{"a": 1}', kinds.JSON),
        ("a.py", b"print(1)\n", kinds.CODE),
        ("a.eml", b"Subject: hi\n\nbody", kinds.EMAIL),
        ("a", b"From: a@b\nTo: c@d\nSubject: hi\n\nbody", kinds.EMAIL),
        ("a", b"From a@b Mon Jan 1\nFrom: a@b\nSubject: hi\n\nbody", kinds.MBOX),
        ("a.eml", b"ARC-Seal: i=1\nSubject: hi\n\nbody", kinds.EMAIL),
        ("a.mht", b"MIME-Version: 1.0\nContent-Type: multipart/related; boundary=q\n\n--q", kinds.EMAIL),
        ("a.eml", b"nothing of a mail", kinds.TEXT),
        ("a", b"plain words", kinds.TEXT),
        ("a.xml", b"<?xml version='1.0'?><a/>", kinds.XML),
        ("a.dat", bytes(range(256)) * 4, kinds.UNKNOWN),
        ("a.txt", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, kinds.BROKEN),
    ],
)
def test_content_decides(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert sniff(path) == expected
    assert kinds.sniff_content(content, name) == expected


def test_the_name_given_refines_text_only(tmp_path: Path) -> None:
    path = tmp_path / "upload-1"
    path.write_bytes(b"a,b\n1,2\n")
    assert sniff(path, "prices.csv") == kinds.CSV
    path.write_bytes(b"%PDF-1.4\n")
    assert sniff(path, "prices.csv") == kinds.PDF


def test_a_character_cut_at_the_end_of_the_head_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(("x" * 70 + "é\n").encode() * 2000)
    assert sniff(path) == kinds.TEXT
