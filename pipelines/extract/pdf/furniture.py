"""Running headers and footers: lines that many pages repeat at their upper or lower margin, and page numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pipelines.extract.pdf.lines import Line

_MARGIN = 0.13  # of the page's height
_EDGE_LINES = 3
_LONGEST = 160
_FEWEST_PAGES = 3
_LONG_AGO = 200  # pages
_DIGITS = re.compile(r"\d+")
_PAGE_NUMBER = re.compile(
    r"[\W_]*(?:(?:page|pages|pg|p|seite|s|página|pagina|pág|pag|strona|str|strana|stran|side|sida|sivu|oldal|sayfa|"
    r"страница|стр|с|第|ページ|頁|页|of|von|de|sur|di|van|z|av|af|из|共|/)?[\W_]*#[\W_]*(?:頁|页|ページ)?)+[\W_]*"
)
_LETTERS = re.compile(r"[^\W\d_]")
_ROMAN = re.compile(r"(?=.)(x{0,3})(ix|iv|v?i{0,3})", re.IGNORECASE)
_UNITS = {"": 0, "i": 1, "ii": 2, "iii": 3, "iv": 4, "v": 5, "vi": 6, "vii": 7, "viii": 8, "ix": 9}
_Key = tuple[str, str, int]


@dataclass(slots=True)
class PageText:
    """The lines of a page, and where on it (base line, in points) its upper and lower margin end."""

    number: int
    lines: list[Line]
    top: float
    bottom: float


@dataclass(slots=True)
class _Seen:
    """On how many pages a line of one form was, how large, and how far each of its numbers was from the page's."""

    count: int = 0
    size: float = 1e9
    last: int = 0
    shifts: list[Counter[int]] = field(default_factory=list)

    def add(self, page: int, size: float, numbers: Sequence[int]) -> None:
        self.size = min(size, self.size)
        if page == self.last:
            return
        self.count += 1
        self.last = page
        self.shifts = self.shifts or [Counter() for _ in numbers]
        for shifts, number in zip(self.shifts, numbers, strict=True):
            shifts[number - page] += 1

    def counts(self) -> bool:
        """Whether one of its numbers counts with the pages, perhaps afresh now and then."""
        few = min(3, self.count)
        return any(
            sum(count for count in shifts.values() if count >= few) >= 0.7 * self.count for shifts in self.shifts
        )


class Furniture:
    """Drops running lines from pages, some pages at a time so that no more of them need be held.

    The first of equal lines stays, since it may say what the document is. Numbers that count with the pages
    stand for nothing in the text: their differences do not make lines unequal, and alone they are dropped.
    """

    def __init__(self) -> None:
        self._seen: dict[_Key, _Seen] = {}
        self._kept: set[tuple[_Key, str]] = set()
        self._pages = 0

    def clean(self, pages: Sequence[PageText]) -> list[list[Line]]:
        """The lines of these pages, which follow those given before, without the running ones."""
        edges = [_edges(page) for page in pages]
        for page, keys in zip(pages, edges, strict=True):
            self._pages += bool(page.lines)
            for index, key in keys.items():
                seen = self._seen.setdefault(key, _Seen())
                line = page.lines[index]
                seen.add(page.number, line.size, _numbers(line.text))
        verdicts = {key: self._judge(key) for keys in edges for key in keys.values()}
        self._forget(pages[-1].number if pages else 0)
        return [
            list(self._without(page.lines, keys, verdicts)) if keys else page.lines
            for page, keys in zip(pages, edges, strict=True)
        ]

    def _without(self, lines: Sequence[Line], keys: dict[int, _Key], verdicts: dict[_Key, str]) -> Iterator[Line]:
        usual = sorted(line.size for line in lines)[(len(lines) - 1) // 2]
        for index, line in enumerate(lines):
            verdict = verdicts[keys[index]] if index in keys else "text"
            if verdict == "text":
                yield line
            elif verdict == "counting" and (line.bold or line.level > 0 or line.size > 1.1 * usual):
                # `Chapter 3`, at the top of the third page.
                if self._is_first(keys[index], line.text):
                    yield line
            elif verdict != "number" and self._is_first(keys[index], "" if verdict == "counting" else line.text):
                # It heads nothing, unless it is the title that the other pages repeat in small.
                large = line.size > 1.1 * self._seen[keys[index]].size
                yield line if line.level or large else line._replace(level=-1)

    def _is_first(self, key: _Key, text: str) -> bool:
        first = (key, text) not in self._kept
        self._kept.add((key, text))
        return first

    def _forget(self, page: int) -> None:
        """Lines that were seen once, long ago, are not running: a long document has very many of them."""
        old = [key for key, seen in self._seen.items() if seen.count == 1 and seen.last < page - _LONG_AGO]
        for key in old:
            del self._seen[key]

    def _judge(self, key: _Key) -> str:
        seen = self._seen[key]
        if self._pages < _FEWEST_PAGES or (seen.count < _FEWEST_PAGES and seen.count <= self._pages / 2):
            return "text"
        if seen.counts():
            return "number" if _PAGE_NUMBER.fullmatch(key[1]) else "counting"
        return "running" if len(_LETTERS.findall(key[1])) >= 4 else "text"


def _edges(page: PageText) -> dict[int, _Key]:
    """The lines at the upper and lower margin of a page, by index, each with what makes it equal to others."""
    lines, top, low_end = page.lines, page.top, page.bottom
    outer = [index for index, line in enumerate(lines) if line.bottom >= top or line.last_bottom <= low_end]
    if not outer:
        return {}
    high = sorted((index for index in outer if lines[index].bottom >= top), key=lambda index: -lines[index].bottom)
    low = sorted(
        (index for index in outer if lines[index].last_bottom <= low_end), key=lambda index: lines[index].last_bottom
    )
    keys = {}
    for side, indexes in (("top", high[: 2 * _EDGE_LINES]), ("bottom", low[: 2 * _EDGE_LINES])):
        levels: set[int] = set()
        for index in indexes:
            line = lines[index]
            levels.add(round(line.bottom / 3))
            if len(levels) > _EDGE_LINES:
                break
            if line.table or not line.size or not line.upright or len(line.text) > _LONGEST:
                continue
            masked = _mask(line.text)
            # Bare numbers must stand at the same height, too.
            height = 0 if _LETTERS.search(masked) else round(line.bottom / 8)
            keys[index] = (side, masked, height)
    return keys


def _mask(text: str) -> str:
    return "#" if len(text) <= 6 and _ROMAN.fullmatch(text) else _DIGITS.sub("#", text.casefold())


def _numbers(text: str) -> tuple[int, ...]:
    if roman := _ROMAN.fullmatch(text):
        return (10 * len(roman[1]) + _UNITS[roman[2].lower()],)
    return tuple(int(digits[:9]) for digits in _DIGITS.findall(text))


def margins(box: tuple[float, float, float, float], rotation: int) -> tuple[float, float]:
    """Where the upper and the lower margin end, as lines are measured on a page so turned.

    Args:
        box: left, bottom, right, top of the page.
    """
    left, bottom, right, top = box
    low, high = {90: (-right, -left), 180: (-top, -bottom), 270: (left, right)}.get(rotation, (bottom, top))
    height = high - low
    return high - _MARGIN * height, low + _MARGIN * height
