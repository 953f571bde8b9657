"""How long to wait before the next attempt."""

from __future__ import annotations

import random

MOST_SECONDS = 7 * 86_400.0
"""Whoever asks us to wait for more than a week has not understood the header, and a time so far off may be no time."""


def backoff(earlier: int, first: float, cap: float) -> float:
    """Seconds to wait after so many earlier waits.

    Full jitter over the upper half of an exponential back-off, so that failures do not come back in step.
    """
    longest = min(cap, first * 2 ** min(earlier, 30))
    return random.uniform(longest / 2, longest)


def asked_wait(seconds: float) -> float:
    """Seconds that the other side asks us to wait, within reason."""
    return min(MOST_SECONDS, max(0.0, seconds))  # in this order: NaN gives 0
