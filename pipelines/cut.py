"""Cutting one text that is too long by itself, and what is repeated of a table that was cut."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import regex
from semantic_text_splitter import TextSplitter

from pipelines.tokens import LIGHTEST, UNIT, estimate_tokens, weigh, weights

SENTENCE_END = re.compile(r"[.!?…][\"'»”’)\]]*\s+|[。！？]+|\n+")
WORD_END = re.compile(r"\s+")

_WINDOW = 3  # largest pieces handed to the splitter at once: its time grows with the square of the text
_LEAST_WINDOW = 32  # characters
_LARGEST_GRAPHEME = 16  # tokens; no emoji has as many, and what has more is no writing
_GRAPHEME = regex.compile(r"\X")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_BAR = re.compile(r"(?<!\\)\|")
_SHORTER = ((24, True), (12, True), (12, False), (6, False))  # longest column name, whether the rule stays


def split(text: str, most: int, least: int) -> Iterator[str]:
    """Pieces that together are the text: sentences, or words, or graphemes.

    Args:
        most: weight that no piece is over; only a grapheme may be, as long as that is less than 16 tokens.
        least: weight that no piece is under where what it ends on allows that.
    """
    pieces = _split(text, most, least)
    if most >= _LARGEST_GRAPHEME * UNIT:
        yield from pieces
        return
    ends = {grapheme.end() for grapheme in _GRAPHEME.finditer(text)}
    position, held = 0, ""
    for piece in pieces:
        position, held = position + len(piece), held + piece
        if position in ends:
            yield held
            held = ""


def _split(text: str, most: int, least: int) -> Iterator[str]:
    highest = max(1, most // UNIT)
    lowest = min(highest, max(1, least // UNIT))
    splitter = TextSplitter.from_callback(estimate_tokens, (lowest, highest), trim=False)
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(weights(text))])
    position = 0
    while position < len(text):
        end = int(np.searchsorted(before, before[position] + _WINDOW * highest * UNIT, side="right"))
        end = min(len(text), max(position + _LEAST_WINDOW, end))
        for number, piece in enumerate(splitter.chunks(text[position:end])):
            if number and end < len(text) and before[end] - before[position] <= highest * UNIT:
                break  # what is left of the window would have been cut in another way if the text went on
            yield piece
            position += len(piece)


def lines(text: str) -> list[str]:
    """The lines of a text, each with its line end."""
    return _LINE.findall(text)


def clip(text: str, longest: int) -> str:
    """The text, or its beginning with an ellipsis: at most so many characters, no grapheme cut."""
    if len(text) <= longest:
        return text
    end = 0
    for grapheme in _GRAPHEME.finditer(text, endpos=longest + 1):  # one that reaches the end may be cut by it
        if grapheme.end() > longest - 1:
            break
        end = grapheme.end()
    return text[:end].rstrip() + "…"


def starts_grapheme(text: str, at: int) -> bool:
    """Whether a grapheme starts at a place that has blank space or punctuation before it."""
    found = _GRAPHEME.match(text, at - 1, at + 1)
    return found is None or found.end() == at


def header_end(table: str) -> int:
    """Where the header of a table ends: the first row with its line end, and the rule below it (Markdown)."""
    end = table.find("\n") + 1
    if not end:
        return len(table)
    below = table.find("\n", end) + 1 or len(table)
    return below if _is_rule(table[end:below]) else end


def repeated_header(table: str, most: int) -> str:
    """What is repeated of a table's header where the table is cut.

    Returns:
        The header; where it weighs more than `most`, the header with shorter column names, without its rule if need
        be; empty where that is too heavy as well, or has no line end.
    """
    end = header_end(table)
    if end > most:
        return ""  # heavier than any of the forms below could make up for
    header = table[:end]
    if not header.endswith("\n"):
        return ""
    if end * LIGHTEST <= most and weigh(header) <= most:
        return header
    first, *rule = lines(header)
    names = [name.strip() for name in _BAR.split(first.strip().strip("|"))]
    for longest, ruled in _SHORTER if len(names) > 1 else ():
        shorter = f"| {' | '.join(clip(name, longest) for name in names)} |\n"
        if rule and ruled:
            shorter += "| --- " * len(names) + "|\n"
        if weigh(shorter) <= most:
            return shorter
    return ""


def _is_rule(line: str) -> bool:
    return "-" in line and not line.strip("| \t:+=-\n")
