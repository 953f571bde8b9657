from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pipelines.errors import PermanentError
from pipelines.extract import ExtractRules, extract
from pipelines.extract.delimited import extract_delimited
from pipelines.extract.html import read_html
from pipelines.extract.job import Job
from pipelines.extract.markdown import markdown_blocks
from pipelines.extract.title import choose_title, sensible_title
from pipelines.types import Block


def test_plain_text_becomes_paragraphs_that_keep_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes("Première ligne\r\nseconde\r\n\r\n\r\nE-4012 means\toverheating\0".encode())
    extracted = extract(path)
    assert extracted.mime == "text/plain"
    assert extracted.text == "Première ligne\nseconde\n\nE-4012 means overheating"
    assert [block.kind for block in extracted.blocks] == ["paragraph", "paragraph"]


def test_a_page_of_text_is_read_in_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "page.txt"
    path.write_text("All work and no play makes a dull page.\n" * 60)
    extract(path)
    best = min(_seconds(path) for _ in range(5))
    assert best < 0.02


def _seconds(path: Path) -> float:
    start = time.process_time()  # the test shares the machine
    extract(path)
    return time.process_time() - start


def test_code_keeps_its_indentation(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("def f():\n    x = 1\n\n    return x\n\ny = 2\n")
    assert [block.text for block in extract(path).blocks] == ["def f():\n    x = 1\n\n    return x", "y = 2"]


MARKDOWN = """---
title: "Service guide"
author: Ana
---
# Guide *for* users

Words that
wrap, with `code` and [a link](http://x).

- first
- second
  1. inner

| SKU | Price |
|---|---|
| 8842-B | 12.50 |

```python
def f():

    return 1
```
"""


def test_markdown(tmp_path: Path) -> None:
    path = tmp_path / "guide.md"
    path.write_text(MARKDOWN)
    extracted = extract(path)
    assert extracted.title == "Service guide"
    assert extracted.metadata["author"] == "Ana"
    assert extracted.blocks == (
        Block("heading", "Guide for users", level=1),
        Block("paragraph", "Words that wrap, with code and a link."),
        Block("list", "first"),
        Block("list", "second"),
        Block("list", "inner"),
        Block("table", "| SKU | Price |\n| --- | --- |\n| 8842-B | 12.50 |"),
        Block("code", "def f():\n\n    return 1"),
    )


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        (
            "a.json",
            b'{"city": "\\u041c\\u043e\\u0441\\u043a\\u0432\\u0430", "n": 1.50}',
            '{"city": "Москва", "n": 1.50}',
        ),
        ("a.jsonl", b'{"a": "\\ud83d\\ude00"}\n{"a": "\\u0022\\\\u0041"}\n', '{"a": "😀"}\n{"a": "\\u0022\\\\u0041"}'),
        ("a.json", b'{"a": "\\ud83d cut', '{"a": "\\ud83d cut'),
        ("a.xml", "<?xml version='1.0' encoding='cp866'?><a>Москва</a>".encode("cp866"), None),
    ],
)
def test_characters_that_are_spelled_in_ascii_or_declared(
    tmp_path: Path, name: str, content: bytes, text: str | None
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert extract(path).text == (text or "<?xml version='1.0' encoding='cp866'?><a>Москва</a>")


def test_markdown_html_blocks_lose_their_tags() -> None:
    assert markdown_blocks("<div>kept</div>\n\n<!-- gone -->\n") == [Block("paragraph", " kept \n")]


def test_csv_repeats_the_header_and_knows_semicolons(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("sku;name\n" + "".join(f'{n};"part, {n}"\n' for n in range(120)))
    extracted = extract_delimited(Job(path, "text/csv"))
    assert len(extracted.blocks) == 3
    assert all(block.text.startswith("| sku | name |\n| --- | --- |\n") for block in extracted.blocks)
    assert "\n| 119 | part, 119 |" in extracted.blocks[2].text
    assert extracted.metadata["rows"] == 120


def test_an_inch_mark_does_not_swallow_the_rows_below_it(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('size\tname\n"5\tpipe\n6\tpump\n')
    extracted = extract_delimited(Job(path, "text/tab-separated-values"))
    assert extracted.text.splitlines()[2:] == ['| "5 | pipe |', "| 6 | pump |"]
    path.write_text('size\tname\n5\t"pi\tpe"\n')
    assert extract_delimited(Job(path, "text/tab-separated-values")).text.splitlines()[2] == "| 5 | pi pe |"


def test_the_line_in_which_excel_names_the_separator_is_no_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("sep=;\nsku;price\n1;2,5\n")
    assert extract_delimited(Job(path, "text/csv")).text == "| sku | price |\n| --- | --- |\n| 1 | 2,5 |"


def test_csv_rows_longer_than_the_header_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('a,b\n1,2,3\n"x,y",z\n')
    assert extract_delimited(Job(path, "text/csv")).text == (
        "| a | b |  |\n| --- | --- | --- |\n| 1 | 2 | 3 |\n| x,y | z |"
    )


def test_a_page_that_is_all_document_is_read_whole() -> None:
    page = (
        "<html><head><title>Prices</title></head><body><h1>Prices</h1><p>Short.<br>Line</p><ul><li>one</li>"
        "<li>two <b>bold</b></li></ul><table><tr><th>SKU</th><th>EUR</th></tr><tr><td>8842-B</td><td>12</td></tr>"
        "</table><pre>a\n  b</pre><script>var x</script>loose words</body></html>"
    )
    title, blocks, _ = read_html(page)
    assert title == "Prices"
    kinds = [(block.kind, " ".join(block.text.split())) for block in blocks]
    assert ("heading", "Prices") in kinds
    assert ("list", "two bold") in kinds
    assert ("table", "| SKU | EUR | | --- | --- | | 8842-B | 12 |") in kinds
    assert not any("var x" in text for _, text in kinds)


def test_navigation_is_left_out_of_a_web_page() -> None:
    words = "The pump stops when the pressure falls below two bar, and error E-4012 is shown on the panel. "
    page = (
        "<html><body><nav><a href='/'>Home</a><a href='/shop'>Our shop</a></nav><article><h1>Pump faults</h1>"
        + "".join(f"<p>{words}Case {n} was seen in the field by our service team.</p>" for n in range(6))
        + "</article><footer>All rights reserved</footer></body></html>"
    )
    _, blocks, _ = read_html(page)
    text = "\n".join(block.text for block in blocks)
    assert "E-4012" in text
    assert "Our shop" not in text
    assert "All rights" not in text


@pytest.mark.parametrize(
    "candidate",
    [None, "", "untitled", "Untitled 2", "Microsoft Word - report.doc", "report.docx", "C:\\x\\y", "Document1", "---"],
)
def test_titles_that_are_none(candidate: str | None) -> None:
    assert sensible_title(candidate) is None


def test_title_falls_back_to_the_first_top_heading() -> None:
    blocks = (Block("heading", "Part", level=2), Block("heading", "Manual", level=1))
    assert choose_title("untitled", blocks) == "Manual"
    assert choose_title("Pump  manual", blocks) == "Pump manual"
    assert choose_title(None, ()) is None


def _refused(path: Path, rules: ExtractRules = ExtractRules()) -> str:  # noqa: B008 - frozen
    with pytest.raises(PermanentError) as caught:
        extract(path, rules=rules)
    assert caught.value.cause
    assert caught.value.remedy
    return caught.value.code


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert _refused(empty) == "empty_file"
    assert _refused(tmp_path / "gone.txt") == "vanished"
    assert _refused(tmp_path) == "not_a_file"
    os.mkfifo(tmp_path / "pipe")
    assert _refused(tmp_path / "pipe") == "not_a_file"
    blank = tmp_path / "blank.txt"
    blank.write_text(" \n\t\n")
    assert _refused(blank) == "no_text"
    large = tmp_path / "large.txt"
    large.write_text("x" * 101)
    assert _refused(large, ExtractRules(max_bytes=100)) == "too_large"
    junk = tmp_path / "junk.txt"
    junk.write_bytes(bytes(range(256)) * 20)
    assert _refused(junk) == "unsupported_format"
    (tmp_path / "old.ps").write_bytes(b"%!PS-Adobe-3.0")
    assert _refused(tmp_path / "old.ps") == "unsupported_format"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("x")
    path.chmod(0)
    assert _refused(path) == "unreadable"


def test_permission_denied_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("x")

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pipelines.extract.gate.os.open", refuse)
    assert _refused(path) == "unreadable"


def test_a_page_gives_its_metadata() -> None:
    words = "The pump stops when the pressure falls below two bar, and error E-4012 is shown on the panel. " * 5
    page = (
        '<html lang="fr"><head><title>Pump faults | Shop</title><meta property="og:site_name" content="Pump Shop">'
        '<meta name="author" content="Ana Lund"><meta property="article:published_time" content="2026-05-01T10:00:00Z">'
        '<meta name="description" content="What E-4012 means"><link rel="canonical" href="https://example.org/faults">'
        f"</head><body><nav><a href='/'>Home</a></nav><article><h1>Pump faults</h1><p>{words}</p></article>"
        "<footer>© 2019</footer></body></html>"
    )
    _, _, facts = read_html(page)
    assert facts == {
        "author": "Ana Lund",
        "date": "2026-05-01",
        "site": "Pump Shop",
        "url": "https://example.org/faults",
        "description": "What E-4012 means",
        "lang": "fr",
    }


def test_a_year_in_the_footer_is_no_date_and_a_relative_address_no_canonical_one() -> None:
    page = "<html><head><link rel='canonical' href='/x'></head><body><p>Words of a page.</p><p>© 2019</p></body></html>"
    _, _, facts = read_html(page)
    assert (facts["date"], facts["url"]) == (None, None)


def test_links_around_a_page_without_navigation_marks_are_left_out() -> None:
    page = (
        "<html><body><table><tr><td><a href='a'>Products</a></td><td><a href='b'>About us</a></td></tr></table>"
        "<p>The meat of the page, with <a href='c'>a link</a>.</p><ul><li><a href='d'>kept: between words</a></li></ul>"
        "<p>The end of it.</p><p><a href='e'>Imprint</a></p></body></html>"
    )
    _, blocks, _ = read_html(page)
    assert [block.text for block in blocks] == [
        "The meat of the page, with a link.",
        "kept: between words",
        "The end of it.",
    ]
    only = "<html><body><p><a href='a'>Products</a></p><p><a href='b'>About us</a></p></body></html>"
    assert [block.text for block in read_html(only)[1]] == ["Products", "About us"]


def test_a_short_page_keeps_its_structure_and_loses_its_margins() -> None:
    body = "<nav><a href='/'>Home</a></nav><h2>Hours</h2><p>Open at nine.</p><footer>Imprint</footer>"
    _, blocks, _ = read_html(f"<html><body>{body}</body></html>")
    assert blocks == [Block("heading", "Hours", level=2), Block("paragraph", "Open at nine.")]
