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

from pipelines.hidden import kinds_of_characters, mark, reveal_tags
from pipelines.types import Block, BlockKind

_LINE_END_HYPHEN = re.compile("[\x02\ufffe]\\s*\n?\\s*|\u00ad\\s*\n\\s*")
_LINE_BREAKS = re.compile("\r\n?|[\x0b\x0c\x85\u2028]")
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ud800-\udfff"
    "\ufdd0-\ufdef\ufeff\ufff9-\ufffb\ufffe\uffff]"
)
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f]")
_UNCLEAN = re.compile(f"{_CONTROL.pattern[:-1]}\x85\u2028\u2029\U000e0000-\U000e007f{_FORBIDDEN.pattern[1:]}")
# Only what is to change: a match for each space there is would take gigabytes on a large text.
_SPACES = re.compile(r"[^\S\n]{2,}|[^\S\n ]")
_SPACES_BUT_TABS = re.compile(r"[^\S\n\t]{2,}|[^\S\n\t ]")
_SPACE_AT_LINE_END = re.compile(r"(?<![^\S\n])[^\S\n]++$", re.MULTILINE)  # looked at once a run, not once a space
_SPACE_AROUND_BREAK = re.compile(r" \n ?|\n ")
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
    if kind != "code" and _is_clean_line(text):
        # Most text there is: nothing to do but to close up its spaces.
        if kind == "table":
            return _SPACES_BUT_TABS.sub(" ", text).strip()
        return _RULE.sub(r"\1\1\1", _closed_up(text))
    text = _LINE_BREAKS.sub("\n", text).replace("\u2029", "\n\n")
    text = _LINE_END_HYPHEN.sub("", text)
    text = unicodedata.normalize("NFKC", _FORBIDDEN.sub("", reveal_tags(text)))
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


def _closed_up(text: str) -> str:
    """A clean line with single spaces. Not by way of its words: those of a large text take gigabytes."""
    text = text.replace("\t", " ").replace("\u1680", " ")
    while "  " in text:
        text = text.replace("  ", " ")
    return text.strip()


def _is_clean_line(text: str) -> bool:
    if text.isascii():
        return not _CONTROL.search(text)
    return not _UNCLEAN.search(text) and unicodedata.is_normalized("NFKC", text)


def sanitise_line(text: str) -> str:
    """Sanitise something that must be one line: a title, a heading, a metadata value."""
    return sanitise(text).replace("\n", " ")


def sanitise_blocks(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Sanitise every block and drop those of which nothing remains; mark those with hidden characters.

    A hidden heading becomes a paragraph: it would else stand in the context of all that follows it.
    """
    clean = map(_sanitise_block, blocks)
    return tuple(block for block in clean if block.text.strip())


def _sanitise_block(block: Block) -> Block:
    block = mark(block, kinds_of_characters(block.text, code=block.kind == "code"))
    if block.hidden and block.kind == "heading":
        block = replace(block, kind="paragraph", level=0)
    text = sanitise_line(block.text) if block.kind == "heading" else sanitise(block.text, block.kind)
    return block if text == block.text else replace(block, text=text)
