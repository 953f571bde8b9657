"""What callers send, as text, names, metadata and addresses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from worker.receivers.fields import MOST_FILENAME_BYTES, HttpUrl, Language, Metadata, Uri, mend, safe_filename


@pytest.mark.parametrize(
    ("given_name", "name"),
    [
        ("résumé é.pdf", "résumé é.pdf"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("/etc/passwd", "passwd"),
        ("C:\\Users\\x\\a.docx", "a.docx"),
        ("a\0b.pdf", "ab.pdf"),
        ("a\r\nX: y.pdf", "aX: y.pdf"),
        ("evil\u202efdp.exe", "evilfdp.exe"),
        ("\ud800.txt", "\ufffd.txt"),
        ("folder/", "folder"),
        ("", "upload"),
        ("..", "upload"),
        (" / ", "upload"),
        ("é" * 300 + ".pdf", "é" * 98 + ".pdf"),
    ],
)
def test_a_file_name_is_never_a_path(given_name: str, name: str) -> None:
    assert safe_filename(given_name) == name


@example("a" * 300)
@example("é" * 300 + ".txt")
@example("a/b\\..\0")
@given(st.text())
def test_any_text_gives_a_name_that_a_disk_and_a_database_take(text: str) -> None:
    name = safe_filename(text)
    assert 0 < len(name.encode()) <= MOST_FILENAME_BYTES
    assert not {"/", "\\", "\0", "\n"} & set(name) and name not in (".", "..")


def test_half_a_character_is_replaced_and_nul_dropped() -> None:
    assert mend("a\ud83d\0b") == "a\ufffdb"


NESTED: Any = {}
for _ in range(30):
    NESTED = {"a": NESTED}


@pytest.mark.parametrize(
    "value",
    [
        [],
        "text",
        7,
        NESTED,
        {"a": float("inf")},
        {"a": [float("nan")]},
        {"a": 10**5000},
        {"a": "x" * 70_000},
    ],
    ids=["list", "text", "number", "nested", "infinite", "nan", "huge", "long"],
)
def test_metadata_that_no_database_could_hold_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Metadata).validate_python(value)


def test_metadata_is_mended_throughout() -> None:
    value = {"a\0": ["\ud800", {"b": "c\0"}], "n": 10**30, "t": True}
    assert TypeAdapter(Metadata).validate_python(value) == {"a": ["\ufffd", {"b": "c"}], "n": 10**30, "t": True}


@pytest.mark.parametrize("value", ["", " a", "a\n", "a\0b", "file:///etc/passwd", "FILE:x", "x" * 3000, "\ud800"])
def test_a_uri_of_a_caller_is_plain_text(value: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Uri).validate_python(value)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("fr", "french"),
        ("fr-CA", "french"),
        ("EN_us", "english"),
        ("French", "french"),
        ("simple", "simple"),
        ("ja", "ja"),
    ],
)
def test_a_language_is_a_configuration_or_a_code(value: str, name: str) -> None:
    assert TypeAdapter(Language).validate_python(value) == name


@pytest.mark.parametrize("value", ["", "a b", "français", "x;drop", "1", "\0"])
def test_a_language_is_a_plain_name(value: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Language).validate_python(value)


@pytest.mark.parametrize(
    "value",
    [
        "ftp://example.com",
        "file:///etc/passwd",
        "//example.com",
        "example.com",
        "http://",
        "http://user@example.com/",
        "http://:secret@example.com/",
        "http://example.com:99999/",
        "http://example.com:0/",
        "http://[::1",
        "http://exa mple.com/",
        "http://example.com/\r\nX: y",
        "javascript:alert(1)",
    ],
)
def test_an_address_is_of_the_web_and_holds_no_password(value: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(HttpUrl).validate_python(value)
