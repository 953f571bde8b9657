"""How long to leave a page alone: less after it has changed, more after it has not.

Sources: the idea, and that a page's own past predicts it best, is from J. Cho and H. Garcia-Molina, "Estimating
frequency of change", ACM Transactions on Internet Technology 3 (2003); the multiplicative steps are those of adaptive
fetch schedules such as Apache Nutch's. With these steps an interval settles where a visit finds a change with a
probability of ln 1.5 / (ln 1.5 + ln 2), that is 37 of 100 times.
"""

from __future__ import annotations

import hashlib

FIRST = 86_400.0
ON_CHANGE = 0.5
ON_UNCHANGED = 1.5
SPREAD = 0.1


def next_interval(last: float | None, changed: bool, least: float, most: float) -> float:
    """Seconds until the next visit, before they are spread.

    Args:
        last: the interval before this visit; None: this was the first.
        changed: whether this visit found the page changed.
        least, most: bounds.
    """
    wanted = FIRST if last is None else last * (ON_CHANGE if changed else ON_UNCHANGED)
    return min(max(wanted, least), most)


def spread(interval: float, url: str, least: float, most: float) -> float:
    """An interval moved by up to a tenth, always the same way for the same address and never over the bounds.

    Pages that were first visited together would come due together for ever.
    """
    position = int.from_bytes(hashlib.sha256(url.encode()).digest()[:8], "big") / 2**64
    low, high = max(least, interval * (1 - SPREAD)), min(most, interval * (1 + SPREAD))
    return low + position * (high - low)
