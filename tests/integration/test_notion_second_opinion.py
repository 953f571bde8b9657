"""The connector to Notion against a fake that others wrote: what it lists and what it reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.notion.second_opinion import Backlot, backlot_server
from worker.connectors.contract import Document, Item, Surroundings
from worker.connectors.notion import NotionConfig, open_notion
from worker.connectors.notion.ids import plain_id
from worker.settings import Settings


@pytest.fixture(scope="module")
def backlot() -> Iterator[Backlot]:
    with backlot_server() as found:
        yield found


def ask(backlot: Backlot, method: str, path: str, **body: Any) -> list[dict[str, Any]]:
    """All of a list, by requests of our own."""
    headers = {"Authorization": f"Bearer {backlot.token}", "Notion-Version": "2025-09-03"}
    url = f"{backlot.base_url}/v1/{path}"
    answer = httpx.request(method, url, headers=headers, timeout=60, trust_env=False, **body)
    answer.raise_for_status()
    found = answer.json()
    assert not found["has_more"]
    return list(found["results"])


def texts(backlot: Backlot, block: str) -> Iterator[str]:
    """The plain text of all blocks below one."""
    for one in ask(backlot, "GET", f"blocks/{block}/children?page_size=100"):
        for piece in one[one["type"]].get("rich_text", []):
            yield piece["plain_text"]
        if one["has_children"] and one["type"] not in ("child_page", "child_database"):
            yield from texts(backlot, one["id"])


def plain(text: str) -> str:
    """Text without marks of Markdown."""
    return " ".join(re.sub(r"[\\*_`|#>-]", "", text).split())


@pytest.mark.timeout(400)  # the other one takes its time to begin
def test_all_pages_are_listed_and_all_blocks_are_read(backlot: Backlot, tmp_path: Path) -> None:
    wanted = ask(backlot, "POST", "search", json={"filter": {"property": "object", "value": "page"}})
    config = NotionConfig(type="notion", base_url=backlot.base_url, requests_per_second=1000)
    settings = Settings(home=tmp_path / "home", fetch_allow=("127.0.0.1",))
    read = 0
    with open_notion(config, Surroundings(settings), token=backlot.token) as connector:
        listed = [entry for entry in connector.listing(full=True) if isinstance(entry, Item)]
        assert {item.key for item in listed} == {plain_id(page["id"]) for page in wanted}
        for page in wanted:
            folder = tmp_path / page["id"]
            folder.mkdir()
            found = connector.visit(plain_id(page["id"]) or "", None, folder)
            assert isinstance(found, Document)
            assert isinstance(found.content, bytes)
            content = plain(found.content.decode())
            for text in texts(backlot, page["id"]):
                assert plain(text) in content
                read += 1
    assert len(wanted) >= 8
    assert read >= 20
