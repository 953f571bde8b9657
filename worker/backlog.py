"""How far the workers are behind: what is due, how long the first in line has waited, and when it is too much."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from psycopg import Connection

from pipelines.errors import UnavailableError
from worker import ledger_statements as statements

MOST_COUNTED = 10_000
"""Counting so many takes about 2 ms, however many rows the ledger has."""

FRESH_SECONDS = 1.0
LEISURE = 20
"""A gauge rests so many times as long as its last look took, so that it never takes more of a process than 5 %."""

RETRY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits for its turn, of all tenants or of one: not what a worker has in hand, nor what is in its back-off.

    Attributes:
        due: documents that could be taken now, or in the next moment where a pause holds them back.
        more: there are more than these; they were not counted.
        oldest_due_seconds: for how long the first in line has been due; None where nothing is.
    """

    due: int
    more: bool
    oldest_due_seconds: float | None

    def as_json(self) -> dict[str, Any]:
        """The same as plain JSON types."""
        return asdict(self)

    def __str__(self) -> str:
        if not self.due:
            return "nothing due"
        return f"{'more than ' if self.more else ''}{self.due:,} due, the oldest for {self.oldest_due_seconds:,.0f} s"


def measure_backlog(connection: Connection[Any], most: int = MOST_COUNTED, *, tenant: str | None = None) -> Backlog:
    """Look at the ledger: one range of the index of what is due.

    Args:
        most: documents to count.
        tenant: whose; None: of all, which is cheaper.
    """
    if tenant is None:
        row = connection.execute(statements.BACKLOG, (most + 1,)).fetchone()
    else:
        row = connection.execute(statements.BACKLOG_OF, (tenant, most + 1)).fetchone()
    assert row is not None
    return Backlog(min(row[0], most), row[0] > most, None if row[1] is None else round(row[1], 3))


class Gauge:
    """A backlog that is looked at about once a second, however often it is asked for. For any thread.

    Args:
        look: measures, and counts so many documents.
        most_due: how many may be due before no more are admitted; None: any number.
    """

    def __init__(self, look: Callable[[int], Backlog], most_due: int | None) -> None:
        self.most_due = most_due
        self._look = look
        self._most_counted = max(MOST_COUNTED, most_due or 0)
        self._looking = threading.Lock()
        self._last: Backlog | None = None
        self._until = 0.0

    def backlog(self) -> Backlog:
        """What was found a moment ago; whoever comes while another looks does not wait for that, if he can help it.

        Raises:
            psycopg.OperationalError: the database is away.
        """
        last = self._last
        if last is not None and time.monotonic() < self._until:
            return last
        if not self._looking.acquire(blocking=last is None):
            assert last is not None
            return last
        try:
            if self._last is None or time.monotonic() >= self._until:
                began = time.monotonic()
                self._last = self._look(self._most_counted)
                ended = time.monotonic()
                self._until = ended + max(FRESH_SECONDS, LEISURE * (ended - began))
            return self._last
        finally:
            self._looking.release()

    def admit(self) -> None:
        """Let one more document come in, or say that it has to wait outside.

        What comes in between two looks is not counted, so a few more than the limit can be due.

        Raises:
            UnavailableError: `queue_full`, with a time to wait.
            psycopg.OperationalError: the database is away.
        """
        if self.most_due is None or (found := self.backlog()).due < self.most_due:
            return
        raise UnavailableError(
            "queue_full",
            f"the workers are behind: {found}, and GRISTMILL_MAX_DUE is {self.most_due:,}",
            "send it again after Retry-After; the operator can look at `gristmill status`",
            retry_after=RETRY_SECONDS,
        )
