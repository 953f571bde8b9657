"""From the lines of PDF pages to headings, paragraphs, list items and tables, by size, weight and place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter, sub

from pipelines.extract.pdf.lines import Line
from pipelines.extract.wrapped import join_lines, keep_hyphens
from pipelines.hidden import merge
from pipelines.types import Block, BlockKind

_LIST_ITEM = re.compile(
    r"(?:[•◦▪‣●○■□–—*·\uf0b7\uf0a7]|-|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.)]|\.\d{1,2}|\d{1,2}(?:\.\d{1,2}){1,3}\.?)\s+\S"
)
_CLOSING = "\"'»”’)]"
_SENTENCE_END = ".!?:;…"
_BOTTOM, _LAST_BOTTOM, _SIZE = attrgetter("bottom"), attrgetter("last_bottom"), attrgetter("size")
_TEXT, _COLUMNS, _IS_BOLD = attrgetter("text"), attrgetter("columns"), attrgetter("bold")
_HIDDEN = attrgetter("hidden")
_HEADING_SIZE = 1.15
_LONGEST_HEADING = 200
_MAX_HEADING_SHARE = 0.3


@dataclass(slots=True)
class Group:
    """Lines that belong together: a paragraph, a list item, a heading, the rows of a table.

    Attributes:
        text: joined, in reading order; a table's rows are lines.
        size: of the font, in points; 0 where unknown.
        lines: how many they are.
        wide: whether a line is parted into three pieces or more.
        table: the text is a table's rows as Markdown.
        outline: heading level that the document's outline gives it, else 0; -1: it is none, whatever it looks like.
        hidden: kinds of text in it that people do not see.
    """

    text: str
    page: int
    size: float
    bold: bool
    lines: int
    wide: bool
    upright: bool
    table: bool = False
    outline: int = 0
    hidden: tuple[str, ...] = ()


def group_lines(lines: Sequence[Line]) -> Iterator[Group]:
    """Gather lines into groups; each stays on one page."""
    usual = _usual_pitch(lines)
    group: list[Line] = []
    pitch = widest = 0.0
    for line in lines:
        if group:
            if _continues(group, line, pitch or usual * line.size, widest):
                pitch = group[-1].last_bottom - line.bottom
            else:
                yield _group(group)
                group, pitch = [], 0.0
        group.append(line)
        if line.right > widest or len(group) == 1:
            widest = line.right
    if group:
        yield _group(group)


def _usual_pitch(lines: Sequence[Line]) -> float:
    """How far lines stand apart, in font sizes: more than usual where most are double-spaced."""
    if len(lines) < 8:
        return 1.65
    drops = sorted(map(sub, map(_LAST_BOTTOM, lines), map(_BOTTOM, lines[1:])))
    size = sorted(map(_SIZE, lines))[len(lines) // 2]
    usual = drops[len(drops) // 2] / size if size else 0.0
    return usual if 1.65 < usual < 3 else 1.65


def _group(lines: list[Line]) -> Group:
    first = lines[0]
    count = len(lines)
    if count == 1:
        return Group(
            first.text,
            first.page,
            first.size,
            first.bold,
            1,
            first.columns > 2,
            first.upright,
            table=first.table,
            outline=first.level,
            hidden=first.hidden,
        )
    columns = list(map(_COLUMNS, lines))
    table = columns.count(1) < 0.5 * count
    texts = list(map(_TEXT, lines))
    return Group(
        # Rows whose cells could not be told apart stay lines of their own.
        "\n".join(texts) if table else join_lines(texts),
        first.page,
        sorted(map(_SIZE, lines))[count // 2],
        all(map(_IS_BOLD, lines)),
        count,
        max(columns) > 2,
        first.upright,
        table=table,
        outline=first.level,
        hidden=merge(*map(_HIDDEN, lines)) if any(map(_HIDDEN, lines)) else (),
    )


def groups_to_blocks(groups: Sequence[Group]) -> list[Block]:
    """Blocks of a whole document: which sizes are headings, and of what level, shows only in all of it."""
    body, body_bold = _body(groups)
    headings = {
        index for index, group in enumerate(groups) if not group.outline and _looks_heading(group, body, body_bold)
    }
    chars = sum(len(groups[index].text) for index in headings)
    if chars > _MAX_HEADING_SHARE * sum(len(group.text) for group in groups) and len(groups) > 4:
        headings = set()
    levels = _levels(groups, headings, body)
    deepest = min(max(levels.values(), default=0) + 1, 5)
    blocks = []
    texts = keep_hyphens([group.text for group in groups])
    for index, (group, text) in enumerate(zip(groups, texts, strict=True)):
        level = max(group.outline, 0)
        if not group.outline and index in headings:
            level = levels.get(round(group.size), deepest) if group.size > body else deepest
        kind: BlockKind = "table" if group.table else "list" if _LIST_ITEM.match(text) else "paragraph"
        blocks.append(Block("heading" if level else kind, text, level, group.page, group.hidden))
    return blocks


def _levels(groups: Sequence[Group], headings: set[int], body: float) -> dict[int, int]:
    """Heading level of each size: the outline's where it names headings of that size, else by rank."""
    named: dict[int, list[int]] = {}
    for group in groups:
        if group.outline > 0:
            named.setdefault(round(group.size), []).append(group.outline)
    sizes = {round(groups[index].size) for index in headings if groups[index].size > body}
    levels: dict[int, int] = {}
    above = 0
    for size in sorted(sizes | {size for size in named if size > body}, reverse=True):
        level = min(named[size]) if size in named else above + 1
        levels[size] = min(level, 4 if size not in named else 6)
        above = max(above, levels[size])
    return levels


def _looks_heading(group: Group, body: float, body_bold: bool) -> bool:
    text = group.text
    if not body or group.lines > 3 or len(text) > _LONGEST_HEADING or group.table or not group.upright or group.wide:
        return False
    large = group.size >= _HEADING_SIZE * body
    if not large and not (group.bold and not body_bold and group.size >= 0.95 * body):
        return False
    if sum(map(str.isalpha, text)) < 2:
        return False
    return large or (len(text) <= 120 and text[-1] not in ".,;:")


def _body(groups: Sequence[Group]) -> tuple[float, bool]:
    """The font size that most characters have, and whether most are bold."""
    weight: dict[float, int] = {}
    bold = total = 0
    for group in groups:
        length = len(group.text)
        total += length
        bold += length * group.bold
        if group.size:
            key = round(group.size * 2) / 2
            weight[key] = weight.get(key, 0) + length
    return max(weight, key=weight.__getitem__) if weight else 0.0, bold > 0.5 * total


def _continues(group: list[Line], line: Line, pitch: float, widest: float) -> bool:
    """Whether `line` goes on with the paragraph (or rows) of `group`.

    Args:
        pitch: how far the last two lines of the group are apart.
        widest: how far to the right its lines reach.
    """
    last = group[-1]
    if line.page != last.page or line.level != last.level or line.table or last.table:
        return False
    size = line.size if line.size > last.size else last.size
    if not line.size or not last.size:
        return len(last.text) > 40 and not _LIST_ITEM.match(line.text)
    rows = last.columns > 1 and line.columns > 1
    drop = last.last_bottom - line.bottom
    if drop < -0.5 * size or drop > 8 * size:
        # Another column, or elsewhere on the page: a sentence may still run on.
        return not rows and line.text[:1].islower() and not _ends_sentence(last.text) and _alike(last, line)
    if drop <= 0.5 * size:
        # The same line of the page: a superscript, a page number, the next cell.
        return True
    if rows:
        return drop < 3 * size
    if last.columns > 1 or line.columns > 1:
        return False
    if (drop > 1.2 * pitch and drop > 1.25 * size) or (drop > 2.2 * size and drop > 1.1 * pitch):
        return False
    if not _alike(last, line) or _LIST_ITEM.match(line.text):
        return False
    ended = _ends_sentence(last.text)
    if ended and line.left > last.left + 0.8 * size and len(group) > 1:
        return False
    # A line that ends far from the right margin ends its paragraph.
    if ended or not line.text[:1].islower():
        reach = widest if widest > line.right else line.right
        return last.right >= line.left + 0.75 * (reach - line.left)
    return True


def _ends_sentence(text: str) -> bool:
    return text[-1:] in _SENTENCE_END or text.rstrip(_CLOSING)[-1:] in _SENTENCE_END


def _alike(one: Line, other: Line) -> bool:
    if one.size == other.size:
        return one.bold == other.bold
    return abs(one.size - other.size) <= 0.12 * max(one.size, other.size) and one.bold == other.bold
