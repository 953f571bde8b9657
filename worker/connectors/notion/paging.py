"""Listings that come in pages: read one by one, and never for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from worker.connectors.contract import Incomplete
from worker.connectors.notion.api import Json, RefusedError

MOST_PAGES = 5_000
"""Of a hundred results each; Notion ends a query after a hundred pages."""

MOST_STALE = 10
"""Pages in a row that bring nothing new before a listing counts as one that does not end."""


class Limit:
    """Notion ended a listing although there is more of it (`request_status`); the result is the last one given."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def read_pages(fetch: Callable[[Json], Json], what: str) -> Iterator[Json | Limit | Incomplete]:
    """The results of all pages; at the end, where they are not all there are, why.

    Written against `reference/intro` (pagination) and `guides/data-apis/query-large-data-sources`.

    Args:
        fetch: asks for a page; it is given `start_cursor` or nothing.
        what: is listed, for the operator.
    """
    cursor: Json = {}
    cursors: set[str] = set()
    seen: set[Any] = set()
    stale = 0
    limit: Limit | None = None
    for _ in range(MOST_PAGES):
        try:
            answer = fetch(cursor)
        except RefusedError as error:
            if not cursor:
                raise
            yield Incomplete(f"{what} broke off: {error.cause}")
            return
        status = answer.get("request_status") or {}
        if status.get("type") == "incomplete":
            limit = Limit(str(status.get("incomplete_reason") or "Notion does not say why"))
        results = [one for one in answer.get("results") or () if isinstance(one, dict)]
        fresh = {one.get("id") for one in results} - seen
        stale = 0 if fresh else stale + 1
        seen |= fresh
        yield from results
        following = answer.get("next_cursor")
        if not answer.get("has_more"):
            if limit is not None:
                yield limit
            return
        if not isinstance(following, str) or not following or following in cursors or stale >= MOST_STALE:
            yield Incomplete(f"{what} comes back to where it was")
            return
        cursors.add(following)
        cursor = {"start_cursor": following}
    yield Incomplete(f"{what} does not end after {MOST_PAGES:,} pages")
