"""The day's budget of tokens for embedding, counted in Postgres for all workers (sql/013_embedding_budget.sql).

A batch is counted before it is sent, and given back where the endpoint says that it did nothing. A worker that is
killed in between has counted at most one batch that was not embedded. Counted afterwards, what was paid by workers
that are killed again and again would never be seen, and several workers would overshoot together.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from psycopg import Connection

from pipelines.errors import PausedError, PermanentError
from pipelines.tokens import estimate_tokens

TAKE = """
insert into embedding_usage as u (day, tokens)
select (now() at time zone 'utc')::date, %(tokens)s::bigint where %(tokens)s <= %(limit)s
on conflict (day) do update set tokens = u.tokens + excluded.tokens where u.tokens + excluded.tokens <= %(limit)s
returning day
"""

GIVE_BACK = "update embedding_usage set tokens = tokens - %s where day = %s"

USED = "select coalesce(sum(tokens), 0)::bigint from embedding_usage where day = (now() at time zone 'utc')::date"


class Budget:
    """The budget as one connection sees it.

    Args:
        limit: estimated tokens in a UTC day; None: all is free, and nothing is counted.
    """

    def __init__(self, connection: Connection[Any], limit: int | None) -> None:
        self._connection = connection
        self._limit = limit

    def admit(self, texts: Sequence[str]) -> None:
        """Refuse a document that no day has room for.

        Args:
            texts: all of it that is not embedded yet.

        Raises:
            PermanentError: they are more than a whole day's budget.
        """
        if self._limit is not None and (tokens := count(texts)) > self._limit:
            raise PermanentError(
                "over_budget",
                f"{tokens:,} tokens of this document are to be embedded, and a day's budget is {self._limit:,}",
                "raise GRISTMILL_EMBED_TOKENS_PER_DAY and restart gristmill up, or split the document; then retry",
            )

    def take(self, texts: Sequence[str]) -> date | None:
        """Count texts that are about to be sent; the UTC day they count for, None where nothing is counted.

        Raises:
            PausedError: today's budget has no room for them.
        """
        if self._limit is None:
            return None
        row = self._connection.execute(TAKE, {"tokens": count(texts), "limit": self._limit}).fetchone()
        if row is None:
            raise PausedError(
                "budget",
                f"{used_today(self._connection):,} of the day's {self._limit:,} tokens for embedding are used, and the"
                f" next {count(texts):,} do not fit in",
                "nothing to do: documents go on at 00:00 UTC; sooner with a higher GRISTMILL_EMBED_TOKENS_PER_DAY and"
                " a restart of gristmill up",
            )
        return date.fromisoformat(str(row[0]))

    def give_back(self, texts: Sequence[str], day: date | None) -> None:
        """These texts were not embedded after all."""
        if day is not None:
            self._connection.execute(GIVE_BACK, (count(texts), day))


def count(texts: Sequence[str]) -> int:
    """Tokens of texts as the budget counts them."""
    return sum(estimate_tokens(text) for text in texts)


def used_today(connection: Connection[Any]) -> int:
    """Tokens counted so far in this UTC day."""
    row = connection.execute(USED).fetchone()
    return int(row[0]) if row else 0
