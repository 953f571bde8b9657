"""The one sanitiser that every parser's text goes through before it may be stored.

Postgres refuses NUL, psycopg refuses lone surrogates, and full-text search finds neither presentation forms
nor words cut by a hyphen at the line end. So: Unicode NFKC, no control characters but line feed and tab, no
surrogates, no invisible format marks, line ends as `\\n`, no absurd white space.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import replace

from pipelines.types import Block, BlockKind

_LINE_END_HYPHEN = re.compile("[\x02\ufffe]\\s*\n?\\s*|\u00ad\\s*\n\\s*")
_LINE_BREAKS = re.compile("\r\n?|[\x0b\x0c\x85\u2028]")
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ud800-\udfff"
    "\ufdd0-\ufdef\ufeff\ufff9-\ufffb\ufffe\uffff]"
)
_SPACES = re.compile(r"[^\S\n]+")
_SPACES_BUT_TABS = re.compile(r"[^\S\n\t]+")
_SPACE_AT_LINE_END = re.compile(r"[^\S\n]+$", re.MULTILINE)
_SPACE_AROUND_BREAK = re.compile(r" ?\n ?")
_BLANK_LINES = re.compile(r"\n{3,}")
_RULE = re.compile(r"([._\-=*~·…])\1{9,}")
_LONGEST_INDENT = re.compile(r"[^\S\n]{200,}")


def sanitise(text: str, kind: BlockKind = "paragraph") -> str:
    """Make text storable and searchable; idempotent.

    Args:
        text: what a parser returned, whatever it holds.
        kind: `code` keeps indentation and inner spacing, `table` keeps lines and tabs; in the others runs of
        white
            space become one space and leader rules (`.....`) are shortened.

    Returns:
        The text, stripped; empty where nothing remains.
    """
    text = _LINE_BREAKS.sub("\n", text).replace("\u2029", "\n\n")
    text = _LINE_END_HYPHEN.sub("", text)
    text = unicodedata.normalize("NFKC", _FORBIDDEN.sub("", text))
    if kind == "code":
        text = _LONGEST_INDENT.sub(" " * 199, text)
        text = _SPACE_AT_LINE_END.sub("", text)
        return _BLANK_LINES.sub("\n\n", text).strip("\n")
    if kind == "table":
        text = _SPACE_AT_LINE_END.sub("", _SPACES_BUT_TABS.sub(" ", text))
    else:
        text = _SPACE_AROUND_BREAK.sub("\n", _SPACES.sub(" ", text))
        text = _RULE.sub(r"\1\1\1", text)
    return _BLANK_LINES.sub("\n\n", text).strip()


def sanitise_line(text: str) -> str:
    """Sanitise something that must be one line: a title, a heading, a metadata value."""
    return sanitise(text).replace("\n", " ")


def sanitise_blocks(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Sanitise every block and drop those of which nothing remains."""
    clean = (
        replace(
            block,
            text=sanitise_line(block.text) if block.kind == "heading" else sanitise(block.text, block.kind),
        )
        for block in blocks
    )
    return tuple(block for block in clean if block.text.strip())
