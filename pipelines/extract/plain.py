"""Plain text in any character set, and text that is code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from pipelines import sniff
from pipelines.charset import decode
from pipelines.extract.job import Job
from pipelines.types import Block, Extracted

_PARAGRAPH = re.compile(r"\n(?:[^\S\n]*+\n)++")
_CODE_BREAK = re.compile(r"\n\n(?=\S)")
_XML_ENCODING = re.compile(rb"\s*<\?xml[^>]+encoding\s*=\s*[\"']([\w.:-]+)")
# A backslash that is itself escaped begins no escape.
_JSON_ESCAPES = re.compile(r"\\\\|(?:\\u[0-9a-fA-F]{4})+")
_PAGE_BREAK = re.compile(r"\n?\f\n?")


def extract_plain(job: Job) -> Extracted:
    """Paragraphs are what blank lines part; their lines stay lines: they may be a list, a log or a verse."""
    text, encoding = read_text(job.path)
    return Extracted(job.mime, None, tuple(paragraphs(text)), metadata={"encoding": encoding})


def paragraphs(text: str) -> Iterator[Block]:
    """What blank lines and page breaks part."""
    for part in _PARAGRAPH.split(_PAGE_BREAK.sub("\n\n", text)):
        if part.strip():
            yield Block("paragraph", part)


def extract_code(job: Job) -> Extracted:
    """Source code and data: blocks that keep their indentation, parted by blank lines before column 0."""
    text, encoding = read_text(job.path, _declared(job) if job.mime == sniff.XML else None)
    if job.mime == sniff.JSON:
        text = _spelled_out(text)
    # In two steps: one expression that looks behind blank lines would do so again from each of them.
    text = _PARAGRAPH.sub("\n\n", text)
    blocks = tuple(Block("code", part) for part in _CODE_BREAK.split(text) if part.strip())
    return Extracted(job.mime, None, blocks, metadata={"encoding": encoding})


def _declared(job: Job) -> str | None:
    with job.path.open("rb") as file:
        found = _XML_ENCODING.match(file.read(200))
    return found[1].decode("ascii") if found else None


def _spelled_out(text: str) -> str:
    """JSON with the characters in place of their `\\uXXXX`, but for those that must be escaped."""

    def spell(found: re.Match[str]) -> str:
        written = found[0]
        spelled = str(json.loads(f'"{written}"'))
        return spelled if spelled.isprintable() and not {'"', "\\"} & set(spelled) else written

    return _JSON_ESCAPES.sub(spell, text)


def read_text(path: Path, declared: str | None = None) -> tuple[str, str]:
    """The whole file as text with `\\n` line ends, and the name of its encoding."""
    text, encoding = decode(path.read_bytes(), declared)
    return text.replace("\r\n", "\n").replace("\r", "\n"), encoding
