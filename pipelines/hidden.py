"""Text that people do not see and a model would read: the kinds of it, and which blocks hold it.

Whoever writes a document may hide orders to a language model in it (OWASP LLM01:2025, indirect prompt injection).
Such text is kept and marked: whoever puts a passage before a model, or before people, can then decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pipelines.types import Block

NOT_DISPLAYED = "not-displayed"  # taken out of what is shown: `display: none`, `hidden`, Word's hidden font
INVISIBLE = "invisible"  # drawn with no ink: PDF render modes 3 and 7 with no picture beneath
TRANSPARENT = "transparent"
WHITE = "white"  # of the colour of its background
TINY = "tiny"  # smaller than one point
OUTSIDE = "outside"  # off the page or the screen
ZERO_WIDTH = "zero-width"
BIDI = "bidi"
TAGS = "tags"  # U+E0000 to U+E007F

FEWEST = 20  # characters, white space left out, below which a hidden piece of markup is a label, not a message
_SHORTEST_PLACED = 8
_MOST_COMPARED = 200_000_000  # characters, some tenths of a second
_BLOCK = 100  # characters: what it costs to begin one

_SUSPECT = re.compile("[\u034f\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]")
_NO_WIDTH = "\u034f\u180e\u200b-\u200d\u2060-\u2064\ufeff"
# One joiner between letters is how Persian, Arabic, the scripts of India and emoji are written, and one zero-width
# space is where a long word may be parted; nobody writes four in a row, or one after every second Latin letter.
_ZERO_WIDTH = re.compile(
    f"[{_NO_WIDTH}]{{4}}|[{_NO_WIDTH}\u200e\u200f]{{8}}|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{{4}}"
    f"|(?:[A-Za-z]{{1,2}}[{_NO_WIDTH}]){{3}}"
)
# An override makes letters run against their direction. Where they run that way in any case it changes nothing.
_BIDI = re.compile("\u202e[^\u202c\u202e\n]{0,200}?[A-Za-z]{2}|\u202d[^\u202c\u202d\n]{0,200}?[\u0590-\u08ff]{2}")
# In source code every one of them is a trap (CVE-2021-42574).
_BIDI_IN_CODE = re.compile("[\u202a-\u202e\u2066-\u2069]")
_FLAG = re.compile("(\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,6}\U000e007f)")
_TAGS = re.compile("[\U000e0000-\U000e007f]+")


def kinds_of_characters(text: str, *, code: bool = False) -> tuple[str, ...]:
    """Which kinds of hidden text a string holds by its characters alone: zero-width, bidi, tags.

    Args:
        code: it is source code, where no change of direction is innocent.
    """
    if text.isascii() or not _SUSPECT.search(text):
        return ()
    found = []
    if (_BIDI_IN_CODE if code else _BIDI).search(text):
        found.append(BIDI)
    if _TAGS.search(_FLAG.sub("", text)):
        found.append(TAGS)
    if _ZERO_WIDTH.search(text):
        found.append(ZERO_WIDTH)
    return tuple(found)


def reveal_tags(text: str) -> str:
    """The text with tag characters as the letters they stand for, so that people see them; emoji flags stay."""
    pieces = _FLAG.split(text)
    return "".join(piece if index % 2 else _TAGS.sub(_letters, piece) for index, piece in enumerate(pieces))


def _letters(found: re.Match[str]) -> str:
    letters = "".join(chr(ord(tag) - 0xE0000) for tag in found.group() if "\U000e0020" <= tag <= "\U000e007e")
    return f" {letters} " if letters else ""


def mark(block: Block, kinds: Iterable[str]) -> Block:
    """The block, marked as holding hidden text of these kinds besides those it has."""
    merged = merge(block.hidden, kinds)
    return block if merged == block.hidden else replace(block, hidden=merged)


def merge(*kinds: Iterable[str]) -> tuple[str, ...]:
    """Kinds of several, each once, in order of name."""
    return tuple(sorted({one for some in kinds for one in some}))


def squeeze(text: str) -> str:
    """Text without its white space, which no two readers of markup agree on."""
    return "".join(text.split())


def mark_pieces(blocks: Sequence[Block], pieces: Sequence[tuple[str, str]], visible: str = "") -> list[Block]:
    """The blocks, those marked that hold a piece of hidden text, or are part of one.

    Args:
        pieces: hidden texts and their kinds, for readers that tell no more than text.
        visible: what is seen of the document: a piece that is there as well is nobody's secret.
    """
    if not pieces:
        return list(blocks)
    seen = squeeze(visible)
    much = len(pieces) * (len(seen) + sum(len(block.text) + _BLOCK for block in blocks)) > _MOST_COMPARED
    hidden: dict[str, str] = {}
    for piece, kind in pieces:
        text = squeeze(piece)
        if len(text) >= FEWEST and (much or text not in seen):
            hidden[text] = kind
    marked = []
    for block in blocks:
        text = squeeze(block.text)
        if (whole := hidden.get(text)) is not None:
            marked.append(mark(block, [whole]))
        elif much:
            # Too much to be placed: all of the document is said to hold it.
            marked.append(mark(block, hidden.values()))
        else:
            own = len(text) >= _SHORTEST_PLACED and text not in seen
            kinds = [kind for piece, kind in hidden.items() if piece in text or (own and text in piece)]
            marked.append(mark(block, kinds))
    return marked


def warning(blocks: Sequence[Block]) -> str | None:
    """One sentence for whoever looks after the document; None where nothing is hidden."""
    kinds = merge(*(block.hidden for block in blocks))
    if not kinds:
        return None
    pages = sorted({block.page for block in blocks if block.hidden and block.page is not None})
    where = f" on page {', '.join(map(str, pages[:5]))}{' …' if len(pages) > 5 else ''}" if pages else ""
    return f"it holds text that people do not see ({', '.join(kinds)}){where}"
