"""Lines that are one paragraph, as running text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

_HYPHENS = ("-", "\u2010")
# pdfium's signs for a hyphen at the end of a line.
_CUT = re.compile("([^\\W\\d_]+)[\x02\ufffe]\\s*([^\\W\\d_]+)")
_LAST_WORD = re.compile(r"[^\W\d_]+$")
_FIRST_WORD = re.compile(r"[^\W\d_]+")
_LONGEST_WORD = 40


def join_lines(lines: Sequence[str]) -> str:
    """The lines of one paragraph as running text; a word or number cut by a hyphen at a line end is made whole."""
    joined = " ".join(map(str.strip, lines))
    if "- " not in joined and "\u2010 " not in joined:
        return joined
    text = ""
    for line in map(str.strip, lines):
        if text.endswith(_HYPHENS) and text[-2:-1].isalpha() and line[:1].islower():
            text = text[:-1] + line
        elif text.endswith(_HYPHENS) and text[-2:-1].isdigit() and line[:1].isdigit():
            text += line
        else:
            text = f"{text} {line}" if text else line
    return text


def keep_hyphens(texts: Sequence[str]) -> list[str]:
    """The texts of a document, in which words that pdfium saw cut at a line end are whole.

    The hyphen is dropped, unless the document has the word with a hyphen elsewhere, within a line.
    """
    if not any("\ufffe" in text or "\x02" in text for text in texts):
        return list(texts)
    compounds = {word for text in texts if "-" in text for word in _compounds(text)}

    def mend(cut: re.Match[str]) -> str:
        left, right = cut.groups()
        return f"{left}-{right}" if f"{left}-{right}".casefold() in compounds else left + right

    return [_CUT.sub(mend, text) if "\ufffe" in text or "\x02" in text else text for text in texts]


def _compounds(text: str) -> Iterator[str]:
    for before, after in pairwise(text.split("-")):
        left = _LAST_WORD.search(before[-_LONGEST_WORD:])
        right = _FIRST_WORD.match(after[:_LONGEST_WORD])
        if left and right:
            yield f"{left.group()}-{right.group()}".casefold()
