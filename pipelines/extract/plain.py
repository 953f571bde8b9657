"""Plain text in any character set, and text that is code."""

from __future__ import annotations

import re
from pathlib import Path

from pipelines.charset import decode
from pipelines.extract.job import Job
from pipelines.types import Block, Extracted

_PARAGRAPH = re.compile(r"\n(?:[^\S\n]*\n)+")
_PAGE_BREAK = re.compile(r"\n?\f\n?")


def extract_plain(job: Job) -> Extracted:
    """Paragraphs are what blank lines part; their lines stay lines: they may be a list, a log or a verse."""
    text, encoding = read_text(job.path)
    text = _PAGE_BREAK.sub("\n\n", text)
    blocks = tuple(Block("paragraph", part) for part in _PARAGRAPH.split(text) if part.strip())
    return Extracted(job.mime, None, blocks, metadata={"encoding": encoding})


def extract_code(job: Job) -> Extracted:
    """Source code and data: blocks that keep their indentation, parted by blank lines before column 0."""
    text, encoding = read_text(job.path)
    blocks = tuple(Block("code", part) for part in re.split(r"\n(?:[^\S\n]*\n)+(?=\S)", text) if part.strip())
    return Extracted(job.mime, None, blocks, metadata={"encoding": encoding})


def read_text(path: Path, declared: str | None = None) -> tuple[str, str]:
    """The whole file as text with `\\n` line ends, and the name of its encoding."""
    text, encoding = decode(path.read_bytes(), declared)
    return text.replace("\r\n", "\n").replace("\r", "\n"), encoding
