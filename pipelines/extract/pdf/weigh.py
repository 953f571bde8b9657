"""Which of two readings of a PDF page is the better one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from pipelines.extract.pdf.decide import judge_text, plausible_count, poor_share, word_count
from pipelines.types import OcrPage

_ARTICLE = re.compile(r"(?<!\w)ال\w{2,}")
_SURE = 60.0


def is_better_reading(other: str, ours: str) -> bool:
    """Whether another program's reading of a garbage text layer is none, and has more words."""
    return judge_text(other) is None and word_count(other) > word_count(ours)


def reads_right_to_left_better(other: str, ours: Sequence[str]) -> bool:
    """Whether another program's reading of a right-to-left page is better.

    It is where it holds more words that begin with the Arabic article, or as many and fewer in which scripts
    are mixed. pypdf reads some files better, since it takes the meaning that is given for a drawn word, and
    puts the words of others in the wrong order: ours is kept where nothing speaks against it.
    """
    if judge_text(other) is not None:
        return False
    mine, theirs = (unicodedata.normalize("NFKC", text) for text in ("\n".join(ours), other))
    articles = len(_ARTICLE.findall(theirs)) - len(_ARTICLE.findall(mine))
    return articles > 0 or (articles == 0 and _mixed_count(theirs) < _mixed_count(mine))


def _mixed_count(text: str) -> int:
    return sum(
        len({unicodedata.name(char, "?").split()[0] for char in word if char.isalpha()}) > 1 for word in text.split()
    )


def is_better_ocr(found: OcrPage, layer: str, reason: str) -> bool:
    """Whether OCR's reading of a page is better than its text layer, that was doubted for a reason."""
    if reason == "poor-layer":
        sure = found.confidence is None or found.confidence >= _SURE
        complete = word_count(found.text) >= 0.6 * word_count(layer)
        return sure and complete and poor_share(found.text) < 0.5 * poor_share(layer)
    if reason == "improbable-letters":
        # Part numbers have few vowels, too: OCR must make out much more than they do.
        return plausible_count(found.text) > 1.5 * plausible_count(layer) + 3
    return word_count(found.text) > word_count(layer)
