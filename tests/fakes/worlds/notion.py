"""A Notion workspace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from tests.fakes.notion import NotionServer
from tests.fakes.notion import World as Workspace
from tests.fakes.sync_house import SyncHouse
from tests.fakes.worlds.crawl import Crawl
from tests.fakes.worlds.ground import Ground
from tests.fakes.worlds.world import CONFIRM
from worker.connectors.contract import Connector, Surroundings
from worker.connectors.notion import NotionConfig, api, open_notion
from worker.connectors.notion.ids import page_uri, plain_id


class NotionWorld:
    """See `World`. A page keeps its uri whatever it is called; pages of search have two results."""

    cannot: ClassVar[Mapping[str, str]] = {}
    sure: ClassVar[bool] = True
    lists_all: ClassVar[bool] = True
    tells_moves: ClassVar[bool] = True
    foresees: ClassVar[frozenset[str]] = frozenset({"changed", "missing"})
    interval: ClassVar[float] = 180.0

    def __init__(self, ground: Ground) -> None:
        ground.patch.setattr(api, "TRIES", 1)
        ground.patch.setattr(api, "PAGE_SIZE", 2)
        self.crawl = Crawl()
        self._ids: dict[str, str] = {}
        self._closed: set[str] = set()
        self._workspace = Workspace(lambda: self.house.now)
        self._server = ground.stack.enter_context(NotionServer(self._workspace))
        self._answer = self._server.answer
        ground.patch.setattr(self._server, "answer", self._answering)
        config = NotionConfig(
            type="notion", base_url=self._server.base_url, requests_per_second=1000, confirm_after=CONFIRM
        )

        def opener(config: NotionConfig, surroundings: Surroundings) -> Connector:
            return open_notion(config, surroundings, token=self._server.token)

        self.house = SyncHouse(ground.settings(), ground.connection, config, self.crawl.opener(lambda: config, opener))

    def put(self, name: str, text: str) -> None:
        """See `World`."""
        page = self._ids.get(name)
        if page is None:
            self._ids[name] = self._workspace.create_page(None, name, markdown=text)
            return
        if self._workspace.nodes[page].trashed:
            self._workspace.restore(page)
        if self._said(page) != " ".join(text.split()):
            self._workspace.edit(page, markdown=text)

    def drop(self, name: str) -> None:
        """See `World`."""
        self._workspace.trash(self._ids[name])

    def move(self, name: str, to: str) -> None:
        """See `World`."""
        page = self._ids[to] = self._ids.pop(name)
        self._workspace.rename(page, to)

    def uri(self, name: str) -> str:
        """See `World`."""
        return page_uri(plain_id(self._ids[name]) or "")

    def truth(self) -> dict[str, str]:
        """See `World`."""
        return {page_uri(plain_id(page) or ""): self._said(page) for page in self._workspace.truth()}

    def downloads(self) -> int:
        """See `World`."""
        return self._server.counts["pages.markdown"] + self._server.counts["blocks.children"]

    @contextmanager
    def away(self) -> Iterator[None]:
        """See `World`."""
        with self._fault("unavailable"):
            yield

    @contextmanager
    def gap(self, name: str) -> Iterator[None]:
        """See `World`: search leads round in a circle."""
        with self._fault("repeat_cursor", on="search"):
            yield

    @contextmanager
    def torn(self) -> Iterator[None]:
        """See `World`."""
        with self._fault("internal", on="search", skip=1):
            yield

    @contextmanager
    def unreadable(self, name: str) -> Iterator[None]:
        """See `World`: everything of it but its properties fails."""
        page = self._ids[name]
        self._closed |= {page, str(plain_id(page))}
        yield
        self._closed.clear()

    @contextmanager
    def _fault(self, kind: Any, **how: Any) -> Iterator[None]:
        self._server.faults.script(kind, times=math.inf, **how)
        yield
        self._server.faults.clear()

    def _answering(self, method: str, target: str, *rest: Any) -> Any:
        said = self._answer(method, target, *rest)
        closed = ("/markdown" in target or "/blocks/" in target) and any(one in target for one in self._closed)
        return said._replace(status=500) if closed and said else said

    def _said(self, page: str) -> str:
        said = self._workspace.truth().get(page)
        return " ".join(" ".join(said.texts).split()) if said else ""
