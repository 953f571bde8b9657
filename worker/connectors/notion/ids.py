"""Ids of Notion's objects: 32 hex digits, written with dashes, without, or inside an address."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

SITE = "https://www.notion.so/"

_ID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_AT_END = re.compile(rf"(?:^|.*[^0-9a-z]|.*[a-z]-)({_ID.pattern})", re.IGNORECASE | re.DOTALL)
_NAMES = ("notion_page_id", "page_id", "pageId")


def plain_id(text: str) -> str | None:
    """The id in a text as 32 lower case hex digits: an id, or an address of a page, database or data source.

    In an address `?p=` wins, which names the page that is open over a database; a view (`?v=`) and a block (`#`)
    are not looked at. None: there is no id in it.
    """
    text = text.strip()
    if _ID.fullmatch(text):
        return _plain(text)
    if "/" not in text:
        return None
    try:
        parts = urlsplit(text)
        query = parse_qs(parts.query)
    except ValueError:
        return None
    for name in ("p", "page_id", "database_id"):
        for value in query.get(name, ()):
            if _ID.fullmatch(value):
                return _plain(value)
    for part in reversed(parts.path.split("/")):
        if found := _AT_END.fullmatch(part):
            return _plain(found[1])
    return None


def block_of(url: str) -> str | None:
    """The id of the block that an address leads to, else of the page."""
    fragment = urlsplit(url).fragment
    return _plain(fragment) if _ID.fullmatch(fragment) else plain_id(url)


def page_uri(key: str) -> str:
    """The address of a page, the same after renames and moves."""
    return SITE + key


def pages_of(event: Any) -> Iterator[str]:
    """Ids of the pages that an event is about.

    Read are the events of Notion's webhooks (`reference/webhooks-events-delivery`, API 2026-03-11): the entity where
    it is a page, and pages among `data.updated_blocks`, which are new or changed below it. A data source, database,
    view, comment or file upload is no page. Read as well: a page object, which is what n8n's Notion Trigger gives, an
    object with `page_id` or `notion_page_id`, an address or id by itself, and a list of these.
    """
    if isinstance(event, str):
        yield from filter(None, [plain_id(event)])
    elif isinstance(event, list):
        for one in event:
            yield from pages_of(one)
    elif isinstance(event, dict):
        yield from _pages_of_object(event)


def _pages_of_object(event: dict[str, Any]) -> Iterator[str]:
    entity = event.get("entity")
    if isinstance(entity, dict):
        data = event.get("data")
        updated = data.get("updated_blocks") if isinstance(data, dict) else None
        for one in (entity, *(updated if isinstance(updated, list) else ())):
            if isinstance(one, dict) and one.get("type") == "page" and isinstance(one.get("id"), str):
                yield from filter(None, [plain_id(one["id"])])
        return
    if "verification_token" in event or "subscription_id" in event:
        return
    for name in _NAMES:
        if isinstance(event.get(name), str):
            yield from filter(None, [plain_id(event[name])])
            return
    if event.get("object", "page") != "page":
        return
    for name in ("id", "url"):
        if isinstance(event.get(name), str) and (found := plain_id(event[name])):
            yield found
            return
    if isinstance(event.get("body"), (dict, list)):
        yield from pages_of(event["body"])


def _plain(found: str) -> str:
    return found.replace("-", "").lower()
