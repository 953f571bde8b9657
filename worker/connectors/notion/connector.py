"""The connector to Notion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import httpx

from worker.connectors.contract import Absence, Connector, Document, Gone, Incomplete, Item, Known, Surroundings, Visit
from worker.connectors.notion.ancestry import Ancestry
from worker.connectors.notion.api import NotionApi
from worker.connectors.notion.config import NotionConfig
from worker.connectors.notion.ids import page_uri, pages_of
from worker.connectors.notion.listing import Listing, stamp, text_of
from worker.connectors.notion.page import Visitor


class NotionConnector(Connector):
    """Pages of Notion; `worker.connectors.contract.Connector` says what each method promises.

    A key is a page's id as 32 hex digits, its uri the address that stays the same over renames and moves.
    """

    absence: ClassVar[Absence] = "ask"
    incremental: ClassVar[bool] = True

    def __init__(
        self, config: NotionConfig, surroundings: Surroundings, token: str, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.api = NotionApi(config, surroundings, token, transport)
        self._began = stamp(surroundings.clock())
        self._since = text_of(surroundings.cursor)
        ancestry = Ancestry(self.api)
        absent = surroundings.cursor.get("absent") or {}
        self._listing = Listing(self.api, surroundings, ancestry, config.roots, self._since, absent)
        self._visitor = Visitor(self.api, config, surroundings, ancestry, frozenset(config.roots))
        self._listed_all = False

    def listing(self, *, full: bool) -> Iterator[Item | Incomplete]:
        if full or not self._since:
            yield from self._listing.everything()
            self._listed_all = True
        else:
            yield from self._listing.changes()

    def visit(self, key: str, known: Known | None, folder: Path) -> Visit:
        held, self._listing.held = self._listing.held, None
        page = held[1] if held is not None and held[0] == key else None
        # After a listing of everything, what it did not name is visited to find out whether it is still there.
        glance = self._listed_all and key not in self._listing.named
        visit = self._visitor.visit(key, page, known, folder, glance=glance)
        if isinstance(visit, Document):
            self._listing.found_below(list(visit.state["children"]), list(visit.state["databases"]))
        elif isinstance(visit, Gone):
            self._listing.found_gone(key)
        return visit

    def cursor(self) -> Mapping[str, Any]:
        newest = self._listing.newest
        since = max(min(newest, self._began), self._since) if newest else self._since
        absent = {"absent": self._listing.absent} if self._listing.absent else {}
        return {"since": since, **absent} if since else {}

    def uri_of(self, key: str) -> str:
        return page_uri(key)

    def pushed(self, event: Any) -> Sequence[str]:
        return tuple(dict.fromkeys(pages_of(event)))

    def close(self) -> None:
        self.api.close()


def open_notion(
    config: NotionConfig, surroundings: Surroundings, *, token: str, transport: httpx.BaseTransport | None = None
) -> Connector:
    """A connector for one run.

    Args:
        token: of the connection in Notion, whatever the config says.
        transport: how requests are sent; None: over the network.
    """
    return NotionConnector(config, surroundings, token, transport)
