"""Pauses: while a row of the table `pauses` stands, no worker of the installation takes a document.

So trouble that all documents would meet is met once, not once a document and process. An embedding pause that ran out
lets one claim through, the scout; the pause ends when the embedder answers it, and is prolonged when it does not.
"""

from __future__ import annotations

import logging
from typing import Any, Literal

from psycopg import Connection
from psycopg.rows import dict_row

from pipelines.errors import GristmillError, PausedError, RetryableError
from worker.backoff import backoff
from worker.settings import Settings

log = logging.getLogger(__name__)

HASTE_SECONDS = 1.0
"""Shortest pause, whatever the other side says: `Retry-After: 0` in a storm is no leave to hammer."""

What = Literal["embedding", "budget"]

# Whoever was under way when the pause began meets the same wall: that is no further strike.
BEGIN = """
insert into pauses as p (what, until, code, cause, remedy)
values ('embedding', now() + make_interval(secs => %(seconds)s), %(code)s, %(cause)s, %(remedy)s)
on conflict (what) do update set
  until = case when %(scout)s then excluded.until else greatest(p.until, excluded.until) end,
  strikes = p.strikes + %(scout)s::int,
  code = excluded.code, cause = excluded.cause, remedy = excluded.remedy
"""

UNTIL_TOMORROW = """
insert into pauses (what, until, code, cause, remedy)
values ('budget', (date_trunc('day', now() at time zone 'utc') + interval '1 day') at time zone 'utc',
  %(code)s, %(cause)s, %(remedy)s)
on conflict (what) do update set since = excluded.since, until = excluded.until, code = excluded.code,
  cause = excluded.cause, remedy = excluded.remedy
"""


class Pauses:
    """The pauses as one connection sees them."""

    def __init__(self, connection: Connection[Any], settings: Settings) -> None:
        self._connection = connection
        self._settings = settings

    def wait_for_embedder(self, error: GristmillError, scout: int | None) -> PausedError:
        """Begin an embedding pause, or prolong the one that stands.

        Args:
            error: what was met; its `retry_after` is kept to, else the pause grows with each that follows another.
            scout: of the claim that met it.

        Returns:
            The error to end the work with.
        """
        asked = error.retry_after if isinstance(error, RetryableError) else None
        if asked is None:
            seconds = backoff(scout or 0, self._settings.backoff_seconds, self._settings.backoff_cap_seconds)
        else:
            seconds = max(asked, HASTE_SECONDS)
        log.warning("no document is taken for %.0f s: %s", seconds, error)
        values = {"seconds": seconds, "scout": scout is not None}
        self._connection.execute(BEGIN, values | _story(error))
        return PausedError(error.code, error.cause, error.remedy)

    def wait_for_tomorrow(self, error: PausedError) -> PausedError:
        """Begin a pause until the next UTC day; the error is given back, to be raised."""
        log.warning("no document is taken until the next UTC day: %s", error)
        self._connection.execute(UNTIL_TOMORROW, _story(error))
        return error

    def lift(self) -> None:
        """The embedder answers: everybody may go on."""
        if self._connection.execute("delete from pauses where what = 'embedding'").rowcount:
            log.info("the embedder answers again")

    def scout_again(self) -> None:
        """The scout has found nothing out: the next claim is another."""
        self._connection.execute("update pauses set until = now() where what = 'embedding'")

    def try_now(self) -> int:
        """Somebody has seen to it: do not wait any longer to find out. How many pauses stood."""
        self.scout_again()
        self._connection.execute("delete from pauses where what = 'budget'")
        return len(self.standing())

    def standing(self) -> list[dict[str, Any]]:
        """`what, since, until, code, cause, remedy` of the pauses that stand; an embedding one may be past its end."""
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(
                "select what, since, until, code, cause, remedy from pauses"
                " where what = 'embedding' or until > now() order by what"
            ).fetchall()


def _story(error: GristmillError) -> dict[str, str]:
    return {"code": error.code, "cause": error.cause, "remedy": error.remedy}
