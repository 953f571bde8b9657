"""The outline of a PDF (its bookmarks): which lines are headings, and of what level."""

from __future__ import annotations

import ctypes
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import pypdfium2.raw as pdfium_c

from pipelines.extract.pdf.lines import Line

_BETWEEN = re.compile(r"[\W_]+")
_MOST = 20_000
_DEEPEST = 6
_LONGEST = 300
_MOST_LINES = 3

Outline = dict[int, dict[str, int]]
"""By 1-based page: the titles of the bookmarks that lead there, letters and digits only, with their levels."""


def read_outline(document: Any) -> Outline:
    """The outline of a `pypdfium2.PdfDocument`; empty where there is none."""
    outline: Outline = {}
    for mark, level in _bookmarks(document.raw):
        target = pdfium_c.FPDFBookmark_GetDest(document.raw, mark)
        page = pdfium_c.FPDFDest_GetDestPageIndex(document.raw, target) if target else -1
        if page < 0:
            continue
        length = pdfium_c.FPDFBookmark_GetTitle(mark, None, 0)
        buffer = ctypes.create_string_buffer(length)
        pdfium_c.FPDFBookmark_GetTitle(mark, buffer, length)
        if title := _squeeze(buffer.raw[:-2].decode("utf-16-le", "replace")):
            outline.setdefault(page + 1, {}).setdefault(title, level)
    return outline


def _bookmarks(document: Any) -> Iterator[tuple[Any, int]]:
    """Each bookmark, before those below it, with its level from 1; a damaged outline may lead back to itself."""
    seen: set[int] = set()
    waiting = [(pdfium_c.FPDFBookmark_GetFirstChild(document, None), 1)]
    while waiting:
        mark, level = waiting.pop()
        if not mark:
            continue
        place = ctypes.addressof(mark.contents)
        if place in seen or len(seen) >= _MOST:
            continue
        seen.add(place)
        yield mark, level
        waiting.append((pdfium_c.FPDFBookmark_GetNextSibling(document, mark), level))
        if level < _DEEPEST:
            waiting.append((pdfium_c.FPDFBookmark_GetFirstChild(document, mark), level + 1))


def mark_headings(lines: Sequence[Line], titles: dict[str, int]) -> list[Line]:
    """The lines of a page; those that make up a title of the outline, up to three, know their level."""
    marked = list(lines)
    left = dict(titles)
    # Most lines are told apart by their first two letters.
    beginnings = {title[:2] for title in titles}
    # Signs between letters, and a number before the title, come on top.
    longest = 2 * max(map(len, titles)) + 12
    following = 0
    for index, line in enumerate(lines):
        begin = line.text[:2].casefold()
        if index < following or (begin not in beginnings and begin.isalpha()) or len(line.text) > longest:
            continue
        text = _squeeze(line.text[:_LONGEST])
        run = 1
        while text:
            level = left.pop(_match(text, left), 0)
            if level:
                for place in range(index, index + run):
                    marked[place] = lines[place]._replace(level=level)
                following = index + run
                break
            if run == _MOST_LINES or index + run >= len(lines) or not any(title.startswith(text) for title in left):
                break
            text += _squeeze(lines[index + run].text[:_LONGEST])
            run += 1
    return marked


def _match(text: str, titles: dict[str, int]) -> str:
    if text in titles:
        return text
    # The number of a section may be on the page only, or in the outline only.
    bare = text.lstrip("0123456789")
    if bare and bare != text and bare in titles:
        return bare
    return next((title for title in titles if len(text) > 3 and title.lstrip("0123456789") == text), "")


def _squeeze(text: str) -> str:
    return _BETWEEN.sub("", (text if text.isascii() else unicodedata.normalize("NFKC", text)).casefold())
