"""An estimate of how many tokens a text has, without any model's tokeniser.

Chunks must not depend on the embedder, else changing the embedder would move every boundary. So each
character has a fixed weight in hundredths of a token, set from the counts of three tokenisers (cl100k,
o200k and XLM-RoBERTa) on English and French prose, source code and a dozen other languages. The sum lies
near the higher of those counts for prose, and never far below it for code and Chinese, Japanese or Korean;
for some scripts it is above. As the weights add up, the estimate of a joined text is never above the sum of
the estimates of its parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UNIT = 100  # weights are in hundredths of a token
LIGHTEST = 20  # no character weighs less

_ASTRAL = 200  # emoji and rare ideographs: two to three tokens each
_RANGES: tuple[tuple[int, int, int], ...] = (  # first, last, weight; later ranges win
    (0x0000, 0xFFFF, 100),
    (0x0000, 0x007F, 100),  # ASCII punctuation
    (0x0000, 0x001F, 30),
    (ord(" "), ord(" "), 20),
    (ord("0"), ord("9"), 50),
    (ord("A"), ord("Z"), 40),
    (ord("a"), ord("z"), 22),
    (0x00A0, 0x00A0, 20),
    (0x00C0, 0x024F, 60),  # accented Latin
    (0x0370, 0x03FF, 90),  # Greek
    (0x0400, 0x052F, 50),  # Cyrillic
    (0x0590, 0x06FF, 75),  # Hebrew, Arabic
    (0x3040, 0x30FF, 105),  # kana
    (0x3400, 0x9FFF, 115),  # ideographs
    (0xAC00, 0xD7A3, 125),  # Hangul
)


def _table() -> NDArray[np.int64]:
    table = np.empty(0x10001, dtype=np.int64)
    for first, last, weight in _RANGES:
        table[first : last + 1] = weight
    table[0x10000] = _ASTRAL
    return table


_TABLE = _table()


def weights(text: str) -> NDArray[np.int64]:
    """The weight of each character in hundredths of a token, shape `(len(text),)`."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    return _TABLE[np.minimum(points, 0x10000)]


def weigh(text: str) -> int:
    """The weight of a text in hundredths of a token."""
    return int(weights(text).sum())


def estimate_tokens(text: str) -> int:
    """Estimated number of tokens: at least 1 for any text, 0 for none."""
    return -(-weigh(text) // UNIT)


@dataclass(frozen=True, slots=True)
class Limit:
    """What a model takes: at most `tokens` tokens in one text, as counted by its own tokeniser."""

    tokens: int
    count: Callable[[str], int]

    def admits(self, text: str) -> bool:
        """Whether the model takes the text."""
        return self.count(text) <= self.tokens
