"""Mends what the text layer of a PDF page says in the wrong way, by where its characters stand.

- Right-to-left: one glyph for several letters (the ligature lam-alef, a word given as its meaning) comes
  reversed from pdfium; a vowel mark comes before its letter, after a space.
- Letters drawn one by one: spaces between all of them.
- Text drawn twice, a shadow or a false bold.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby, pairwise
from operator import attrgetter, eq

from pipelines.extract.pdf.lines import Line, Ruler, median

RTL = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc"
_RTL = re.compile(f"[{RTL}]")
_RTL_RUN = re.compile(f"[{RTL}][{RTL}\\s]+")
_LETTERS = re.compile(r"[^\W\d_]")
_EARLY_MARK = re.compile("[ \u00a0]([\u064b-\u0652])([\u0621-\u064a])")
# `و Pythonمن`: the space belongs behind the Latin word.
_MOVED_SPACE = re.compile("(?<![\u0620-\u064a])([\u0648\u0641\u0628\u0644\u0643]) ([A-Za-z0-9]+)(?=[\u0620-\u064a])")
_NO_SPACE = re.compile("([A-Za-z0-9])([\u0620-\u064a])")
_SPACED_CAPITALS = re.compile(r"[A-Z] [A-Z] [A-Z] [A-Z]")
_SINGLE = re.compile(r"(?<!\S)[^\W\d_](?!\S)")
_SHORT_TOKENS = 2.8
_RTL_SHARE = 0.2
_CROWDED = attrgetter("crowded")


def is_right_to_left(text: str, odd: str) -> bool:
    """Whether a good part of the letters is of a script that runs to the left.

    Args:
        odd: `odd_characters(text)`.
    """
    found = len(_RTL.findall(odd))
    return found > 0 and found >= _RTL_SHARE * len(_LETTERS.findall(text))


def repair(lines: list[Line], text: str, odd: str, ruler: Ruler) -> list[Line]:
    """The lines of a page, mended.

    Args:
        text: of the page.
        odd: `odd_characters(text)`.
        ruler: measures its characters.
    """
    lines = _without_doubles(lines)
    if odd and _RTL.search(odd):
        lines = _each(lines, lambda line: _RTL.search(line.text) is not None, lambda line: _reordered(line, ruler))
    if _looks_spaced(text):
        lines = _each(lines, _is_spaced, lambda line: _closed_up(line, ruler))
    return lines


def _each(lines: Sequence[Line], wanted: Callable[[Line], bool], mend: Callable[[Line], str]) -> list[Line]:
    # Indexes of characters no longer fit a text that was changed.
    return [line._replace(text=mend(line), start=-1) if line.start >= 0 and wanted(line) else line for line in lines]


def _without_doubles(lines: list[Line]) -> list[Line]:
    texts = [line.text for line in lines]
    if not any(map(eq, texts, texts[1:])) and not any(map(_CROWDED, lines)):
        return lines
    kept: list[Line] = []
    for found in lines:
        once = _once(found.text) if found.crowded else found.text
        line = found if once == found.text else found._replace(text=once, start=-1)
        if kept and line.text == kept[-1].text and line.size:
            near = 0.35 * line.size
            last = kept[-1]
            if abs(line.left - last.left) < near and abs(line.bottom - last.bottom) < near:
                continue
        kept.append(line)
    return kept


def _once(text: str) -> str:
    """The text without its second half where that repeats the end of the first."""
    words = text.split()
    for count in range(len(words) // 2, 0, -1):
        tail = words[-count:]
        rest = words[:-count]
        if rest[-count:] == tail or (
            len(tail[0]) > 2 and rest[-count:][1:] == tail[1:] and rest[-count].endswith(tail[0])
        ):
            return " ".join(rest)
    return text


def _reordered(line: Line, ruler: Ruler) -> str:
    text = line.text
    if text.isascii() or len(text.encode("utf-16-le", "surrogatepass")) != 2 * len(text):
        return text
    pieces = []
    position = 0
    for run in _RTL_RUN.finditer(text):
        pieces.append(text[position : run.start()])
        pieces += _glyphs(run.group(), line.start + run.start(), ruler)
        position = run.end()
    mended = "".join([*pieces, text[position:]])
    mended = _MOVED_SPACE.sub(r"\1\2 ", _EARLY_MARK.sub(r"\2\1", mended))
    return _NO_SPACE.sub(r"\1 \2", mended).strip()


def _glyphs(text: str, start: int, ruler: Ruler) -> Iterator[str]:
    """The text of each glyph, turned round where it holds several letters in the wrong order."""
    origins = [ruler.origin(start + offset) for offset in range(len(text))]
    for _, members in groupby(range(len(text)), key=origins.__getitem__):
        piece = "".join(text[index] for index in members)
        yield piece[::-1] if len(piece) > 1 and _is_reversed(piece) else piece


def _is_reversed(piece: str) -> bool:
    """Whether the letters of one glyph are in the wrong order.

    Those of a ligature that Unicode knows are in the right one where pdfium took it apart, and in the wrong one
    where the font gave its letters.
    """
    if sum(map(str.isalpha, piece)) < 2:
        return unicodedata.category(piece[0]) == "Mn"
    known = _ligatures()
    return piece not in known


@cache
def _ligatures() -> frozenset[str]:
    """The letters of every Arabic ligature of Unicode."""
    forms = (*range(0xFB50, 0xFE00), *range(0xFE70, 0xFEFD))
    return frozenset(unicodedata.normalize("NFKC", chr(form)) for form in forms)


def _looks_spaced(text: str) -> bool:
    if _SPACED_CAPITALS.search(text):
        return True
    gaps = text.count(" ")
    if gaps < 5 or gaps < len(text) / (_SHORT_TOKENS + 1.5):
        return False
    tokens = text.split()
    return sum(map(len, tokens)) < _SHORT_TOKENS * len(tokens)


def _is_spaced(line: Line) -> bool:
    tokens = line.text.split()
    singles = len(_SINGLE.findall(line.text))
    return len(tokens) >= 4 and (singles >= 0.3 * len(tokens)) and _LETTERS.search(line.text) is not None


def _closed_up(line: Line, ruler: Ruler) -> str:
    """The line with spaces only where the gap is much wider than between most of its letters."""
    text = line.text
    inked = [index for index, char in enumerate(text) if not char.isspace()]
    boxes = [ruler.box(line.start + index) for index in inked]
    gaps = [after[0] - before[2] for before, after in pairwise(boxes)]
    if len(gaps) < 4:
        return text
    usual = median(gaps)
    wide = max(1.7 * usual, usual + 0.12 * line.size)
    spaces = sum(gap > wide for gap in gaps)
    if spaces >= 0.5 * len(gaps):
        return text
    pieces = [text[inked[0]]]
    for gap, index in zip(gaps, inked[1:], strict=True):
        pieces.append(" " + text[index] if gap > wide else text[index])
    return "".join(pieces)
