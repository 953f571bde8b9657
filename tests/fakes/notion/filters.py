"""Filters of a query: timestamps, alone or combined."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from operator import eq, ge, gt, le, lt
from typing import Any

from tests.fakes.notion.nodes import Node

_TESTS = {"equals": eq, "after": gt, "on_or_after": ge, "before": lt, "on_or_before": le}


class Rejected(Exception):  # noqa: N818 - an answer more than an error
    """The filter is not one that is understood."""


def passes(rule: dict[str, Any] | None, page: Node) -> bool:
    """Whether a page passes a filter. Times are compared as they are shown: down to the minute.

    Raises:
        Rejected: for a filter by properties, and for one that is not valid.
    """
    if rule is None:
        return True
    if "and" in rule:
        return all(passes(one, page) for one in rule["and"])
    if "or" in rule:
        return any(passes(one, page) for one in rule["or"])
    stamp = rule.get("timestamp")
    if stamp not in ("created_time", "last_edited_time") or stamp not in rule:
        raise Rejected(f"body.filter is not understood by the fake: {rule}")
    moment = (page.created if stamp == "created_time" else page.edited).replace(second=0, microsecond=0)
    for name, given in rule[stamp].items():
        if name not in _TESTS:
            raise Rejected(f"body.filter.{stamp}.{name} is not understood by the fake")
        limit = datetime.fromisoformat(given)
        limit = limit if limit.tzinfo else limit.replace(tzinfo=UTC)
        if len(given) == len("2026-01-01") and name in ("after", "on_or_before"):
            limit += timedelta(days=1) - timedelta(microseconds=1)
        if not _TESTS[name](moment, limit):
            return False
    return True
