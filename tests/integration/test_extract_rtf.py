"""RTF in the character sets of its fonts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import PermanentError
from pipelines.extract import extract
from pipelines.extract.office.rtf import RtfDecoder

JAPANESE = "日本語の文書です。表示ソフト能力"


def _coded(text: str, encoding: str) -> str:
    return "".join(f"\\'{byte:02x}" for byte in text.encode(encoding))


def _decoded(body: str) -> str:
    return RtfDecoder().decode(b"{\\rtf1 " + body.encode("latin-1") + b"}").removeprefix("{\\rtf1 ").removesuffix("}")


def test_a_document_in_rtf(tmp_path: Path) -> None:
    path = tmp_path / "a.rtf"
    cells = "\\trowd\\cellx900\\cellx1800\\pard\\intbl {}\\cell\\pard\\intbl {}\\cell\\row"
    path.write_text(
        "{\\rtf1\\ansi\\ansicpg1250{\\fonttbl{\\f0\\fcharset238 Arial;}}{\\stylesheet{\\s1\\outlinelevel0 heading 1;}}"
        "{\\info{\\title " + _coded("Článek", "cp1250") + "}{\\author Ana}}"
        "\\pard\\s1\\outlinelevel0 " + _coded("Část", "cp1250") + "\\par\\pard first{\\footnote as of 2026} line\\par "
        "{\\pict\\pngblip 89504e47}{\\deleted gone }{\\header running head}"
        + cells.format("SKU", "EUR") + cells.format("8842-B", "12") + "\\pard {\\b never closed"
    )  # fmt: skip
    extracted = extract(path)
    assert extracted.mime == "application/rtf"
    assert (extracted.title, extracted.metadata["author"]) == ("Článek", "Ana")
    assert [(block.kind, block.text) for block in extracted.blocks] == [
        ("heading", "Část"),
        ("paragraph", "first line"),
        ("table", "| SKU | EUR |\n| --- | --- |\n| 8842-B | 12 |"),
        ("paragraph", "never closed"),
        ("list", "as of 2026"),
    ]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("\\ansicpg932 " + _coded(JAPANESE, "cp932"), JAPANESE),
        (
            "{\\fonttbl{\\f0 A;}{\\f1\\fcharset128 M;}}\\f0 caf\\'e9\\f1 " + _coded("日本", "cp932") + "\\f0\\'e9",
            "café日本é",
        ),
        ("\\ansicpg1251 " + _coded("Привет", "cp1251"), "Привет"),
        ("\\mac caf\\'8e", "café"),
        ("\\pc caf\\'82", "café"),
        ("\\uc1 a\\u233?b", "aéb"),
        ("\\uc2\\u26085\\'93\\'fa\\u26412\\'96\\'7b!", "日本!"),
        ("{\\uc0\\u8364 5}\\u233?x", "€5éx"),
        ("\\u-10179?\\u-8704?", "😀"),
        ("\\f0\\u50?", "2"),
        ("a\\bin5 }{\\x}b", "ab"),
        ("a{\\object{\\*\\objdata 0105}{\\result seen}}", "aseen"),
    ],
)
def test_characters(tmp_path: Path, body: str, text: str) -> None:
    path = tmp_path / "a.rtf"
    path.write_bytes(b"{\\rtf1\\ansi\\deff0" + body.encode("latin-1") + b"\\par}")
    assert extract(path).text.replace(" ", "").replace("\n", "") == text


def test_braces_and_backslashes_stay_escaped() -> None:
    assert _decoded("a\\{b\\\\c\\}") == "a\\{b\\\\c\\}"
    assert _decoded("\\'7b\\'5c") == "\\{\\\\"


def test_the_document_ends_at_its_last_brace_and_struck_out_words_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.rtf"
    path.write_text("{\\rtf1\\ansi the {\\rtf1 {\\strike old} rent}\\par} \\line \\par}")
    assert extract(path).text == "the old rent"


def test_nesting_has_an_end() -> None:
    with pytest.raises(PermanentError) as caught:
        RtfDecoder().decode(b"{\\rtf1" + b"{" * 5000)
    assert caught.value.code == "bomb"
