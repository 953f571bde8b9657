"""How many requests of a kind are worked on at once; others of the kind wait in line, and hold nothing meanwhile.

Work that blocks is done in threads, and most of it on a connection of the pool. There are so many of each, and without
lanes a crowd of one kind would hold all of them: questions that wait for a slow embedder, or documents that come by the
thousand. Then nobody else would be served either, whatever he asks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread

P = ParamSpec("P")
T = TypeVar("T")

INTAKE = 6
"""Documents that are noted at once, each on a connection."""

EMBEDDING = 32
"""Questions and texts that wait for the embedder. They hold a thread, but no connection."""

SEARCH = 6
"""Questions that Postgres answers at once."""


class Lane:
    """Runs calls in threads, at most so many at a time, in the order in which they came."""

    def __init__(self, most: int) -> None:
        self._limiter = CapacityLimiter(most)

    @property
    def busy(self) -> int:
        """How many calls are under way."""
        return int(self._limiter.borrowed_tokens)

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What the call returns; what it raises is passed on.

        A lane is never entered from within itself: with all places held by calls that wait for one, nobody would go on.
        """
        return await to_thread.run_sync(partial(call, *args, **kwargs), limiter=self._limiter)


class Lanes:
    """Those of one service. Whatever has none of its own shares the threads of the framework."""

    def __init__(self) -> None:
        self.intake = Lane(INTAKE)
        self.embedding = Lane(EMBEDDING)
        self.search = Lane(SEARCH)
