"""Ids in addresses, and which pages an event of Notion's is about."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from worker.connectors.notion.config import NotionConfig
from worker.connectors.notion.ids import block_of, page_uri, pages_of, plain_id

ID = "59833787-2cf9-4fdf-8782-e53db20768a5"
HEX = "598337872cf94fdf8782e53db20768a5"
OTHER = "0a3d277ffb654eb7a087bd292b36d8f5"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (ID, HEX),
        (HEX, HEX),
        (f" {ID.upper()}\n", HEX),
        (f"https://www.notion.so/{HEX}", HEX),
        (f"https://www.notion.so/acme/Release-plan-2026-{HEX}?pvs=4", HEX),
        (f"https://www.notion.so/acme/Add-{HEX}/", HEX),
        (f"https://app.notion.com/p/{HEX}", HEX),
        (f"https://acme.notion.site/{ID}", HEX),
        (f"https://www.notion.so/acme/{HEX}?v={OTHER}", HEX),
        (f"https://www.notion.so/acme/{OTHER}?p={HEX}&pm=s", HEX),
        (f"https://www.notion.so/Plan-{HEX}#{OTHER}", HEX),
        ("https://www.notion.so/acme/Plan", None),
        ("Plan", None),
        (f"x{HEX}", None),
        ("http://[", None),
        ("", None),
    ],
)
def test_an_id_is_found(text: str, found: str | None) -> None:
    assert plain_id(text) == found


def test_a_block_is_what_the_fragment_says() -> None:
    assert block_of(f"https://www.notion.so/{HEX}#{OTHER}") == OTHER
    assert block_of(f"https://www.notion.so/{HEX}#top") == HEX
    assert page_uri(HEX) == f"https://www.notion.so/{HEX}"


def _event(kind: str, entity: str, **data: Any) -> dict[str, Any]:
    """As Notion sends it, `reference/webhooks-events-delivery`."""
    return {
        "id": OTHER,
        "timestamp": "2026-11-30T10:00:00.000Z",
        "workspace_id": OTHER,
        "subscription_id": OTHER,
        "integration_id": OTHER,
        "type": kind,
        "authors": [{"id": OTHER, "type": "person"}],
        "attempt_number": 1,
        "entity": {"id": ID, "type": entity},
        "data": {"parent": {"id": OTHER, "type": "space"}, **data},
    }


@pytest.mark.parametrize(
    ("event", "keys"),
    [
        *(
            (_event(f"page.{what}", "page"), [HEX])
            for what in ["created", "deleted", "undeleted", "moved", "locked", "unlocked", "properties_updated"]
        ),
        (_event("page.content_updated", "page", updated_blocks=[{"id": OTHER, "type": "block"}]), [HEX]),
        (_event("page.content_updated", "page", updated_blocks=[{"id": OTHER, "type": "page"}]), [HEX, OTHER]),
        (_event("data_source.schema_updated", "data_source"), []),
        (_event("data_source.content_updated", "data_source", updated_blocks=[{"id": OTHER, "type": "page"}]), [OTHER]),
        (_event("database.created", "database"), []),
        (_event("comment.created", "comment", page_id=OTHER), []),
        (_event("view.created", "view"), []),
        ({"verification_token": "secret_x"}, []),
        ({"id": ID}, [HEX]),
        ({"object": "page", "id": ID, "url": f"https://www.notion.so/{OTHER}"}, [HEX]),
        ({"object": "data_source", "id": ID}, []),
        ({"notion_page_id": ID}, [HEX]),
        ({"page_id": f"https://www.notion.so/Plan-{HEX}"}, [HEX]),
        ({"url": f"https://www.notion.so/Plan-{HEX}"}, [HEX]),
        ({"headers": {}, "body": {"id": ID}}, [HEX]),
        ([{"id": ID}, {"id": OTHER}], [HEX, OTHER]),
        (f"https://www.notion.so/Plan-{HEX}", [HEX]),
        ({"id": "no id"}, []),
        ({"id": 7, "entity": None}, []),
        ({"entity": {"type": "page", "id": None}}, []),
        (None, []),
        (17, []),
    ],
)
def test_an_event_tells_of_pages(event: Any, keys: list[str]) -> None:
    assert list(pages_of(event)) == keys


def test_roots_are_ids_or_addresses() -> None:
    config = NotionConfig(type="notion", roots=(ID, f"https://www.notion.so/acme/{OTHER}?v={HEX}"))
    assert config.roots == (HEX, OTHER)
    with pytest.raises(ValidationError, match="no id or address of a page"):
        NotionConfig(type="notion", roots=("The handbook",))


def test_the_token_is_not_shown() -> None:
    assert "ntn_secret" not in repr(NotionConfig.model_validate({"type": "notion", "token": "ntn_secret"}))
