"""Chunking: a document's blocks become passages of at most a token budget.

Structure decides first. A heading starts a new passage and belongs to the one that follows it. Within a
section, runs of blocks that do not fit the budget are cut between blocks where that is possible, at
boundaries chosen by content (see `pipelines.boundaries`), so that an edit changes the passages it touches
and no others. A table or code block is cut only if it is too long by itself, between rows or lines, with
the table's header row repeated; a paragraph only if it is too long, between sentences, then words, then
graphemes, with a small overlap.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from semantic_text_splitter import TextSplitter

from pipelines.boundaries import Unit, segment
from pipelines.context import code_headers, context_header
from pipelines.language import detect_language, document_language
from pipelines.tokens import UNIT, estimate_tokens, weights
from pipelines.types import BLOCK_SEPARATOR, Block, Chunk, Extracted

_GLUED, _INSIDE, _SENTENCE, _BLOCK = 0, 1, 2, 3  # strengths of the boundary before a unit
_WINDOW = 16  # characters a token handed to the splitter at once: its time grows with the square of the text
_KEY_PREFIX = 32  # characters
_FINEST = 16  # a piece of a long paragraph is at least a sixteenth of the budget, if its text allows
_SENTENCE_END = re.compile(r"[.!?…][\"'»”’)\]]*\s+|[。！？]+|\n+")
_WORD_END = re.compile(r"\s+")
_TABLE_RULE = re.compile(r"[\s|:+=-]*-[\s|:+=-]*")


@dataclass(frozen=True, slots=True)
class ChunkRules:
    """How to chunk.

    Attributes:
        tokens: budget of a chunk's content, by `estimate_tokens`; its context header comes on top.
        overlap: most tokens repeated where a paragraph is cut; part of the budget, at most a quarter of it.
        default_language: text search configuration where none can be detected.
    """

    tokens: int = 256
    overlap: int = 32
    default_language: str = "english"


@dataclass(frozen=True, slots=True)
class _Ruler:
    """The document's text, the weight of all before each character, and the limits as weights."""

    text: str
    cumulative: NDArray[np.int64]
    budget: int
    overlap: int

    @classmethod
    def of(cls, text: str, rules: ChunkRules) -> _Ruler:
        cumulative = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(weights(text))])
        return cls(text, cumulative, rules.tokens * UNIT, min(rules.overlap, rules.tokens // 4) * UNIT)

    def weigh(self, start: int, end: int) -> int:
        return int(self.cumulative[end] - self.cumulative[start])


@dataclass(frozen=True, slots=True)
class _Placed:
    """A block and where it stands in the document's text."""

    block: Block
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Section:
    """Headings and the blocks below them, up to the next heading."""

    path: tuple[str, ...]
    headings: tuple[_Placed, ...]
    body: tuple[_Placed, ...]
    trailing: tuple[_Placed, ...] = ()  # headings at the document's end with nothing below them


def chunk(extracted: Extracted, rules: ChunkRules, *, title: str | None = None) -> list[Chunk]:
    """Cut a document into chunks.

    Args:
        title: used for the context header where the document has no title of its own: for code, its path.

    Returns:
        Chunks in reading order. `content` is `extracted.text[start:end]` without outer blank space,
        preceded by the header row where a table was cut. No content is over the budget, unless one grapheme
        is. With `overlap=0` the spans follow each other without a gap, but for block separators, and never
        overlap.
    """
    text = extracted.text
    ruler = _Ruler.of(text, rules)
    main_language = document_language(text, rules.default_language)
    chunks: list[Chunk] = []
    for section in _sections(extracted.blocks):
        blocks = (*section.headings, *section.body, *section.trailing)
        starts = np.array([placed.start for placed in blocks])
        context = context_header(extracted.title or title, section.path)
        for start, end, lead in _spans(section, ruler):
            content = lead + text[start:end].strip("\n").rstrip()
            if not content.strip():
                continue
            first = blocks[int(np.searchsorted(starts, start, side="right")) - 1].block
            one = Chunk(
                index=len(chunks),
                content=content,
                context=context,
                section=section.path,
                page=first.page,
                start=start,
                end=end,
                language=detect_language(content, main_language),
                tokens=estimate_tokens(f"{context}\n{content}" if context else content),
            )
            chunks.append(one)
    if extracted.blocks and all(block.kind == "code" for block in extracted.blocks):
        return _with_code_headers(chunks, extracted.title or title)
    return chunks


def _with_code_headers(chunks: list[Chunk], place: str | None) -> list[Chunk]:
    headers = code_headers(place, [one.content for one in chunks])
    return [
        replace(one, context=header, tokens=estimate_tokens(f"{header}\n{one.content}" if header else one.content))
        for one, header in zip(chunks, headers, strict=True)
    ]


def _sections(blocks: Sequence[Block]) -> list[_Section]:
    sections: list[_Section] = []
    stack: list[tuple[int, str]] = []
    headings: list[_Placed] = []
    body: list[_Placed] = []
    position = 0

    def close() -> None:
        path = tuple(heading for _, heading in stack)
        sections.append(_Section(path, tuple(headings), tuple(body)))
        headings.clear()
        body.clear()

    for block in blocks:
        placed = _Placed(block, position, position + len(block.text))
        position = placed.end + len(BLOCK_SEPARATOR)
        if block.kind == "heading":
            if body:
                close()
            while stack and stack[-1][0] >= block.level:
                stack.pop()
            stack.append((block.level, " ".join(block.text.split())))
            headings.append(placed)
        else:
            body.append(placed)
    if headings and not body and sections:
        previous = sections.pop()
        sections.append(_Section(previous.path, previous.headings, previous.body, tuple(headings)))
    elif headings or body:
        close()
    return sections


def _spans(section: _Section, ruler: _Ruler) -> Iterator[tuple[int, int, str]]:
    """Start, end and repeated lead (a table's header row, else empty) of each chunk of a section."""
    units, owners = _units(section, ruler)
    previous = 0
    for first, last in segment(units, ruler.cumulative, ruler.budget):
        unit, owner = units[first], owners[first]
        start, lead = unit.start, ""
        if unit.lead and owner.block.kind == "table":
            lead = _table_header(owner.block.text)
        elif unit.lead:
            start = _overlap_start(ruler, max(owner.start, previous), unit.start)
        previous = unit.start
        yield start, units[last - 1].end, lead


def _units(section: _Section, ruler: _Ruler) -> tuple[list[Unit], list[_Placed]]:
    """The units of a section, and the block that each is part of.

    A heading is held to what follows it (one at the document's end to what stands before it) as long as it
    leaves room for it; what follows is cut into pieces that fit beside it.
    """

    def weigh(run: Sequence[_Placed]) -> int:
        return ruler.weigh(run[0].start, run[-1].end) + UNIT if run else 0

    head, tail = weigh(section.headings), weigh(section.trailing)
    hold_head, hold_tail = head <= ruler.budget // 2, tail <= ruler.budget // 4
    units: list[Unit] = []
    owners: list[_Placed] = []

    def add(placed: _Placed, *, glued: bool, room: int = ruler.budget) -> None:
        pieces = _pieces(placed, ruler, room, _GLUED if glued and units else _BLOCK)
        units.extend(pieces)
        owners.extend([placed] * (len(units) - len(owners)))

    for placed in section.headings:
        add(placed, glued=hold_head)
    for index, placed in enumerate(section.body):
        leads, trails = index == 0 and hold_head, index == len(section.body) - 1 and hold_tail
        add(placed, glued=leads, room=ruler.budget - head * leads - tail * trails)
    for placed in section.trailing:
        add(placed, glued=hold_tail)
    return units, owners


def _pieces(placed: _Placed, ruler: _Ruler, room: int, strength: int) -> Iterator[Unit]:
    """One unit for a block that has room, else its rows, lines, sentences or words.

    `strength` is that of the boundary before the block.
    """
    own, kind = placed.block.text, placed.block.kind
    if ruler.weigh(placed.start, placed.end) <= room:
        yield Unit(placed.start, placed.end, _key(own), strength)
        return
    parts, lead = [own], ruler.overlap
    if kind in ("table", "code"):
        parts, lead = own.splitlines(keepends=True), 0
    if kind == "table":
        header = _table_header(own)
        lead = _weight(header) if _weight(header) <= ruler.budget // 4 else 0
        parts = [header, *own[len(header) :].splitlines(keepends=True)]
    room -= lead
    start, inner = placed.start, strength
    for part in parts:
        whole = part is not own and _weight(part) <= room
        for piece in [part] if whole else _split(part, room, ruler.budget // _FINEST):
            yield Unit(start, start + len(piece), _key(piece), inner, lead if start > placed.start else 0)
            start += len(piece)
            inner = _SENTENCE if _SENTENCE_END.search(piece[-8:] + " ") else _INSIDE
        if kind == "table" and lead and part is parts[0]:
            inner = _GLUED  # a header row without a row says nothing


def _split(text: str, most: int, least: int) -> Iterator[str]:
    """Pieces that together are the text: sentences, or words, or graphemes.

    Each weighs at most `most`, and at least `least` where what it ends on allows that.
    """
    highest = max(1, most // UNIT)
    lowest = min(highest, max(1, least // UNIT))
    splitter = TextSplitter.from_callback(estimate_tokens, (lowest, highest), trim=False)
    position, size = 0, max(4_000, highest * _WINDOW)
    while position < len(text):
        window = text[position : position + size]
        pieces = splitter.chunks(window)
        if position + len(window) < len(text) and len(pieces) > 1:
            pieces.pop()  # it was cut by the window, perhaps within a grapheme
        yield from pieces
        position += sum(map(len, pieces))


def _overlap_start(ruler: _Ruler, floor: int, start: int) -> int:
    """Where the repeated text before `start` begins: at a sentence, else a word, else at `start` itself."""
    within = int(np.searchsorted(ruler.cumulative, ruler.cumulative[start] - ruler.overlap, side="left"))
    if within <= floor:
        return floor
    for end in (_SENTENCE_END, _WORD_END):
        if found := end.search(ruler.text, within, start):
            return found.end()
    return start


def _table_header(table: str) -> str:
    """The first row with its line end, and the rule below it where there is one (Markdown)."""
    lines = table.splitlines(keepends=True)
    ruled = len(lines) > 1 and _TABLE_RULE.fullmatch(lines[1])
    return "".join(lines[: 2 if ruled else 1])


def _weight(text: str) -> int:
    return int(weights(text).sum())


def _key(text: str) -> int:
    """Hash of a unit: its first characters in the high half, so that an edit further on seldom moves the
    boundary."""

    def digest(part: str) -> bytes:
        return hashlib.blake2b(part.encode("utf-8", "surrogatepass"), digest_size=4).digest()

    return int.from_bytes(digest(text[:_KEY_PREFIX]) + digest(text))
