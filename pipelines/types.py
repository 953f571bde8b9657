"""The values that are passed along the pipeline: `Source -> Extracted -> [Chunk] -> [EmbeddedChunk]`.

Everything here is frozen: a stage takes one value and returns the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

BlockKind = Literal["heading", "paragraph", "list", "table", "code"]
PageDecision = Literal["text", "ocr", "blank", "failed"]
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]
else:
    # Parsing processes know no vectors, and numpy would cost each of them 0.1 s.
    Vector = Any

BLOCK_SEPARATOR = "\n\n"


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a document that belongs together: a heading, a paragraph, a list item, a table, a code block.

    Attributes:
        level: 1 to 6 for a heading, else 0.
        page: the 1-based page it starts on, where the format has pages.
        hidden: kinds of text in it that people do not see (`white`, `zero-width`, ...: `pipelines.hidden`).
    """

    kind: BlockKind
    text: str
    level: int = 0
    page: int | None = None
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PageReport:
    """What was done with one page, and why.

    Attributes:
        number: 1-based.
        decision: text layer, OCR, blank page, or failed where it could not be looked at.
        reason: the rule that decided, e.g. `no-text`, `garbage`, `ocr-layer`.
        confidence: mean OCR word confidence, 0 to 100; None where no OCR was run.
        rotation: degrees, clockwise, by which OCR turned the page to read it.
        languages: Tesseract codes it was read with; empty where no OCR was run.
        warning: what a reader of OCR's text should know: `low-confidence`, `partly-unread` (paragraphs that were
            guesses are left out), or what to install to read its script; else empty.
        problem: why nothing of what OCR read may be used (`ocr-timeout`, `ocr-unsure`, ...), else empty. The text
            layer of such a page is kept.
    """

    number: int
    decision: PageDecision
    reason: str
    confidence: float | None = None
    rotation: int = 0
    languages: str = ""
    warning: str = ""
    problem: str = ""

    @property
    def unread(self) -> bool:
        """Whether there is, or may be, something on the page that could not be read."""
        return self.decision == "failed" or bool(self.problem)


@dataclass(frozen=True, slots=True)
class OcrPage:
    """What OCR made of one page, before it is weighed against the page's text layer.

    Attributes:
        number: 1-based.
        paragraphs: in reading order.
        confidence: mean word confidence, 0 to 100; None where there was no word.
        rotation: degrees, clockwise, by which the picture was turned to be upright: 0, 90, 180 or 270.
        languages: Tesseract codes it was read with, `+` between.
        problem: why nothing of it may be used (`ocr-timeout`, `ocr-unsure`, `ocr-failed`), else None.
        warning: what a reader of it should know (`low-confidence`, `partly-unread`), or of the problem: what to
            install; else empty.
    """

    number: int
    paragraphs: tuple[str, ...] = ()
    confidence: float | None = None
    rotation: int = 0
    languages: str = ""
    problem: str | None = None
    warning: str = ""

    @property
    def text(self) -> str:
        """All paragraphs, a line each."""
        return "\n".join(self.paragraphs)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A document found inside another.

    Attributes:
        name: as the containing document has it, made safe and unique within it.
        size: in bytes.
        mime: its media type as sniffed; None where its bytes were not kept.
        path: the file its bytes were written to; None where they were not kept.
    """

    name: str
    size: int
    mime: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Extracted:
    """A document as clean text in blocks.

    Attributes:
        mime: what the content is, as sniffed, e.g. `application/pdf`.
        title: the document's own title, else None (callers fall back to the file name).
        blocks: in reading order, never empty of text.
        pages: one report a page for formats with pages, else empty.
        metadata: facts worth keeping beside every chunk (author, date, ...), JSON-serialisable.
        attachments: documents found inside it.
        awaiting: pages that need OCR and were left to others, since more than `inline_ocr_pages` of them do;
            unless empty, blocks and pages are not complete.
    """

    mime: str
    title: str | None
    blocks: tuple[Block, ...]
    pages: tuple[PageReport, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    attachments: tuple[Attachment, ...] = ()
    awaiting: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The whole text; character spans of chunks count in this string."""
        return BLOCK_SEPARATOR.join(block.text for block in self.blocks)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage that is embedded, indexed and shown as one.

    Attributes:
        index: 0-based position in the document.
        content: the text that is shown.
        context: deterministic header (title › section path), embedded and indexed but not shown; None without one.
        section: headings above the chunk, outermost first.
        page: 1-based page the chunk starts on.
        start, end: character span in `Extracted.text`.
        language: name of a Postgres text search configuration, e.g. `french`.
        tokens: estimated tokens of `indexed_text`.
        page_end: 1-based page the chunk's last block starts on.
        hidden: kinds of text in it that people do not see.
    """

    index: int
    content: str
    context: str | None
    section: tuple[str, ...]
    page: int | None
    start: int
    end: int
    language: str
    tokens: int
    page_end: int | None = None
    hidden: tuple[str, ...] = ()

    @property
    def indexed_text(self) -> str:
        """What the embedder sees: the context header, then the content."""
        return f"{self.context}\n{self.content}" if self.context else self.content

    @property
    def content_hash(self) -> bytes:
        """SHA-256 of `indexed_text`: chunks with the same hash share one embedding."""
        return hashlib.sha256(self.indexed_text.encode()).digest()


@dataclass(frozen=True, slots=True)
class EmbeddedChunk:
    """A chunk with its vector (float32, shape `(dimensions,)`) and the id of the model that made it."""

    chunk: Chunk
    vector: Vector
    model: str
