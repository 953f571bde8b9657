"""The mass-deletion guard of a sync: whether documents that seem to be gone are believed to be.

A connection that lost its rights, a site that lost its database or a bucket emptied by mistake look just like a
deletion of everything.
"""

from __future__ import annotations

from datetime import timedelta

MEMORY = timedelta(days=1)
"""Documents removed so recently still count, so that a slow removal of everything is seen as one."""


def too_many(removing: int, live: int, recent: int, *, share: float, minimum: int) -> bool:
    """Whether so many documents are to leave the index that a person has to confirm it.

    Args:
        removing: how many are to leave it now.
        live: how many of the sync's are in it, these included.
        recent: how many have left it within `MEMORY`.
        share, minimum: more than this share of all, and at least so many, with those of late: visits that are due at
            times of their own find a few at each run.
    """
    return removing > 0 and removing + recent >= minimum and removing + recent > share * (live + recent)
