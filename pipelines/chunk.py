"""Chunking: a document's blocks become passages of at most a token budget.

Structure decides first. A heading starts a new passage and belongs to the one that follows it. Within a
section, runs of blocks that do not fit the budget are cut between blocks where that is possible, at
boundaries chosen by content (see `pipelines.boundaries`), so that an edit changes the passages it touches
and no others. A table or code block is cut only if it is too long by itself, between rows or lines, with
the table's header row repeated; a paragraph only if it is too long, between sentences, then words, then
graphemes, with a small overlap.

The budget is an estimate that no model has a part in, so that changing the embedder moves no boundary. What an
embedder cannot take, as counted by its own tokeniser, is cut further, at the same kinds of boundaries, and the
passages around it stay as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipelines.boundaries import Unit, segment
from pipelines.context import code_headers, context_header, shortened
from pipelines.cut import SENTENCE_END, WORD_END, clip, header_end, lines, repeated_header, split, starts_grapheme
from pipelines.errors import ConfigurationError
from pipelines.hidden import merge
from pipelines.language import detect_language, document_language
from pipelines.tokens import UNIT, Limit, estimate_tokens, weigh, weights
from pipelines.types import BLOCK_SEPARATOR, Block, Chunk, Extracted

_GLUED, _INSIDE, _SENTENCE, _BLOCK = 0, 1, 2, 3  # strengths of the boundary before a unit
_KEY_PREFIX = 32  # characters
_FINEST = 16  # a piece of a long paragraph is at least a sixteenth of the budget, if its text allows
_LONGEST_HEADING = 200  # characters of a heading that are kept in the section path
_HEADER_SHARE = 4  # a context header takes at most a quarter of what an embedder takes


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

    def __post_init__(self) -> None:
        """Refuse sizes that make no sense.

        Raises:
            ConfigurationError: no budget, or an overlap that is negative or over a quarter of the budget.
        """
        if self.tokens < 1 or not 0 <= self.overlap * 4 <= self.tokens:
            raise ConfigurationError(
                "chunk_rules",
                f"chunks of {self.tokens} tokens cannot overlap by {self.overlap}",
                "set GRISTMILL_CHUNK_OVERLAP_TOKENS to at most a quarter of GRISTMILL_CHUNK_TOKENS",
            )


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
        return cls(text, cumulative, rules.tokens * UNIT, rules.overlap * UNIT)

    def weigh(self, start: int, end: int) -> int:
        return int(self.cumulative[end] - self.cumulative[start])

    def smaller(self, weight: float) -> _Ruler | None:
        """For pieces of about a weight, and in any case smaller ones; None where they are as small as they get."""
        budget = min(int(weight), self.budget * 3 // 4)
        return replace(self, budget=budget, overlap=min(self.overlap, budget // 4)) if budget >= UNIT else None


class _Span(NamedTuple):
    """A stretch of the document's text, and what of a table's header is repeated before it."""

    start: int
    end: int
    lead: str = ""

    def content(self, text: str) -> str:
        """What is shown of it; blank where there is nothing to show."""
        own = text[self.start : self.end].strip("\n").rstrip()
        return self.lead + own if own.strip() else ""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A block, or a stretch of one, and where it stands in the document's text."""

    block: Block
    start: int
    end: int
    origin: int  # where the whole block starts

    @property
    def text(self) -> str:
        return self.block.text[self.start - self.origin : self.end - self.origin]

    def within(self, span: _Span) -> _Placed:
        return replace(self, start=max(self.start, span.start), end=min(self.end, span.end))


@dataclass(frozen=True, slots=True)
class _Piece:
    """A unit, and what of a table's header is repeated where a chunk starts with it."""

    unit: Unit
    owner: _Placed
    header: str = ""


@dataclass(frozen=True, slots=True)
class _Section:
    """Headings and the blocks below them, up to the next heading."""

    path: tuple[str, ...]
    headings: tuple[_Placed, ...]
    body: tuple[_Placed, ...]
    trailing: tuple[_Placed, ...] = ()  # headings at the document's end with nothing below them


class _Blocks:
    """The blocks of a document, to be found by where they stand."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        position = 0
        self.placed: list[_Placed] = []
        for block in blocks:
            self.placed.append(_Placed(block, position, position + len(block.text), position))
            position += len(block.text) + len(BLOCK_SEPARATOR)
        self._starts = np.array([placed.start for placed in self.placed])
        self._any_hidden = any(block.hidden for block in blocks)

    def within(self, span: _Span) -> list[_Placed]:
        """Those that a span touches, cut to it."""
        first = int(np.searchsorted(self._starts, span.start, side="right")) - 1
        last = int(np.searchsorted(self._starts, span.end, side="left"))
        return [found for placed in self.placed[first:last] if (found := placed.within(span)).start < found.end]

    def pages(self, span: _Span) -> tuple[int | None, int | None]:
        """The page a span starts on, and that of its last block."""
        pages = [placed.block.page for placed in self.within(span)]
        first, last = pages[0], pages[-1]
        return first, last if first is not None and last is not None and last > first else first

    def hidden(self, span: _Span) -> tuple[str, ...]:
        """Kinds of hidden text in the blocks that a span touches."""
        return merge(*(placed.block.hidden for placed in self.within(span))) if self._any_hidden else ()


def chunk(
    extracted: Extracted, rules: ChunkRules, *, title: str | None = None, limit: Limit | None = None
) -> list[Chunk]:
    """Cut a document into chunks.

    Args:
        title: used for the context header where the document has no title of its own: for code, its path.
        limit: what the embedder takes, None where it takes any text.

    Returns:
        Chunks in reading order. `content` is `extracted.text[start:end]` without outer blank space,
        preceded by the header row where a table was cut. No content is over the budget, unless one grapheme
        is; no `indexed_text` is over the limit. Spans cover the text but for blank space. With `overlap=0` they
        never overlap.

    Raises:
        ConfigurationError: the limit does not even admit a single character.
    """
    text = extracted.text
    blocks = _Blocks(extracted.blocks)
    ruler = _Ruler.of(text, rules)
    main_language = document_language(text, rules.default_language)
    title = extracted.title or title
    chunks: list[Chunk] = []
    for section in _sections(blocks.placed):
        context = context_header(title, section.path)
        for span in _spans(section, ruler):
            if content := span.content(text):
                page, page_end = blocks.pages(span)
                one = Chunk(
                    index=len(chunks),
                    content=content,
                    context=context,
                    section=section.path,
                    page=page,
                    start=span.start,
                    end=span.end,
                    language=detect_language(content, main_language),
                    tokens=0,
                    page_end=page_end,
                    hidden=blocks.hidden(span),
                )
                chunks.append(one)
    if extracted.blocks and all(block.kind == "code" for block in extracted.blocks):
        headers = code_headers(title, [one.content for one in chunks])
        chunks = [replace(one, context=header) for one, header in zip(chunks, headers, strict=True)]
    if limit is not None:
        chunks = [piece for one in chunks for piece in _admitted(one, blocks, ruler, limit)]
    return [replace(one, index=index, tokens=estimate_tokens(one.indexed_text)) for index, one in enumerate(chunks)]


def _admitted(whole: Chunk, blocks: _Blocks, ruler: _Ruler, limit: Limit) -> Iterator[Chunk]:
    """The chunk, or pieces of it that the embedder takes; each is cut no smaller than it has to be."""
    if limit.admits(whole.indexed_text):
        yield whole
        return
    context = shortened(whole.context, lambda header: limit.count(header) * _HEADER_SHARE <= limit.tokens)
    pending: list[tuple[_Span, str, _Ruler | None]] = [(_Span(whole.start, whole.end), whole.content, ruler)]
    while pending:
        span, content, used = pending.pop()
        page, page_end = blocks.pages(span)
        one = replace(
            whole,
            content=content,
            context=context,
            start=span.start,
            end=span.end,
            page=page,
            page_end=page_end,
            hidden=blocks.hidden(span),
        )
        count = limit.count(one.indexed_text)
        if count <= limit.tokens:
            yield one
            continue
        smaller = used.smaller(weigh(content) * limit.tokens / count) if used else None
        finer = list(_spans(_section_of(blocks.within(span)), smaller)) if smaller else _halves(span)
        contents = [(part, part.content(ruler.text), smaller) for part in finer]
        pending += reversed([found for found in contents if found[1]])


def _section_of(run: Sequence[_Placed]) -> _Section:
    """A stretch of a document as a section of its own."""

    def is_heading(placed: _Placed) -> bool:
        return placed.block.kind == "heading"

    headings = tuple(takewhile(is_heading, run))
    trailing = tuple(takewhile(is_heading, reversed(run[len(headings) :])))[::-1]
    return _Section((), headings, tuple(run[len(headings) : len(run) - len(trailing)]), trailing)


def _halves(span: _Span) -> list[_Span]:
    """For a grapheme that is over the limit by itself."""
    if span.end - span.start < 2:
        raise ConfigurationError(
            "embedder_limit",
            "the limit of the embedder does not even admit a single character",
            "set GRISTMILL_EMBED_MAX_TOKENS to what the model takes, or unset it",
        )
    middle = (span.start + span.end) // 2
    return [_Span(span.start, middle), _Span(middle, span.end)]


def _sections(blocks: Sequence[_Placed]) -> list[_Section]:
    sections: list[_Section] = []
    stack: list[tuple[int, str]] = []
    headings: list[_Placed] = []
    body: list[_Placed] = []

    def close() -> None:
        path = tuple(heading for _, heading in stack)
        sections.append(_Section(path, tuple(headings), tuple(body)))
        headings.clear()
        body.clear()

    for placed in blocks:
        block = placed.block
        if block.kind == "heading":
            if body:
                close()
            while stack and stack[-1][0] >= block.level:
                stack.pop()
            stack.append((block.level, clip(" ".join(block.text.split()), _LONGEST_HEADING)))
            headings.append(placed)
        else:
            body.append(placed)
    if headings and not body and sections:
        previous = sections.pop()
        sections.append(_Section(previous.path, previous.headings, previous.body, tuple(headings)))
    elif headings or body:
        close()
    return sections


def _spans(section: _Section, ruler: _Ruler) -> Iterator[_Span]:
    """What each chunk of a section holds."""
    pieces = _pieces(section, ruler)
    previous = 0
    for first, last in segment([piece.unit for piece in pieces], ruler.cumulative, ruler.budget):
        unit, owner, header = pieces[first].unit, pieces[first].owner, pieces[first].header
        start = unit.start
        if unit.lead and not header:
            start = _overlap_start(ruler, max(owner.start, previous), unit.start)
        previous = unit.start
        yield _Span(start, pieces[last - 1].unit.end, header)


def _pieces(section: _Section, ruler: _Ruler) -> list[_Piece]:
    """The units of a section.

    A heading is held to what follows it (one at the document's end to what stands before it) as long as it
    leaves room for it; what follows is cut into pieces that fit beside it.
    """

    def total(run: Sequence[_Placed]) -> int:
        return ruler.weigh(run[0].start, run[-1].end) + UNIT if run else 0

    head, tail = total(section.headings), total(section.trailing)
    hold_head, hold_tail = head <= ruler.budget // 2, tail <= ruler.budget // 4
    pieces: list[_Piece] = []

    def add(placed: _Placed, *, glued: bool, room: int = ruler.budget) -> None:
        pieces.extend(_cut(placed, ruler, room, _GLUED if glued and pieces else _BLOCK))

    for placed in section.headings:
        add(placed, glued=hold_head)
    for index, placed in enumerate(section.body):
        leads, trails = index == 0 and hold_head, index == len(section.body) - 1 and hold_tail
        add(placed, glued=leads, room=ruler.budget - head * leads - tail * trails)
    for placed in section.trailing:
        add(placed, glued=hold_tail)
    return pieces


def _cut(placed: _Placed, ruler: _Ruler, room: int, strength: int) -> Iterator[_Piece]:
    """One piece for a block that has room, else its rows, lines, sentences or words.

    `strength` is that of the boundary before the block.
    """
    own, kind, start, inner = placed.text, placed.block.kind, placed.start, strength
    header, lead, body = "", 0, placed.origin
    if kind == "table":
        header = repeated_header(placed.block.text, room // 2)
        lead, body = weigh(header), placed.origin + header_end(placed.block.text)
    continues = placed.start > placed.origin and placed.start >= body and bool(header)  # a table cut before
    if ruler.weigh(placed.start, placed.end) + lead * continues <= room:
        unit = Unit(placed.start, placed.end, _key(own), strength, lead * continues)
        yield _Piece(unit, placed, header if continues else "")
        return
    parts = [own]
    if kind == "table":
        parts = [own[: max(0, body - start)], *lines(own[max(0, body - start) :])]
    elif kind == "code":
        parts = lines(own)
    else:
        lead = ruler.overlap
    room -= lead
    for part in parts:
        whole = part is not own and weigh(part) <= room
        for text in [part] if whole else split(part, room, ruler.budget // _FINEST):
            cut = start >= body and bool(header) if kind == "table" else start > placed.start
            unit = Unit(start, start + len(text), _key(text), inner, lead if cut else 0)
            yield _Piece(unit, placed, header if cut else "")
            start += len(text)
            inner = _SENTENCE if SENTENCE_END.search(text[-8:] + " ") else _INSIDE
        if kind == "table" and start == body and whole and lead == weigh(part):
            inner = _GLUED  # a header row without a row says nothing


def _overlap_start(ruler: _Ruler, floor: int, start: int) -> int:
    """Where the repeated text before `start` begins: at a sentence, else a word, else at `start` itself."""
    within = int(np.searchsorted(ruler.cumulative, ruler.cumulative[start] - ruler.overlap, side="left"))
    if within <= floor:
        return floor
    for end in (SENTENCE_END, WORD_END):
        for found in end.finditer(ruler.text, within, start):
            if starts_grapheme(ruler.text, found.end()):
                return found.end()
    return start


def _key(text: str) -> int:
    """Hash of a unit: its first characters in the high half, so that an edit further on seldom moves the
    boundary."""

    def digest(part: str) -> bytes:
        return hashlib.blake2b(part.encode("utf-8", "surrogatepass"), digest_size=4).digest()

    return int.from_bytes(digest(text[:_KEY_PREFIX]) + digest(text))
