"""A web site, kept in step page by page, by its sitemaps, or by its feed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from tests.fakes import site as fake
from tests.fakes.site import Page, Site
from tests.fakes.sync_house import SyncHouse
from tests.fakes.worlds.crawl import Crawl
from tests.fakes.worlds.ground import Ground
from tests.fakes.worlds.world import CONFIRM
from worker.connectors.config import SyncConfig
from worker.connectors.contract import Connector
from worker.connectors.web import FeedConfig, PagesConfig, SitemapConfig, open_feed, open_pages, open_sitemap

RECRAWL_MIN, RECRAWL_MAX = 30.0, 600.0
LISTS = ("/robots.txt", "/sitemap-index.xml", "/sitemap-0.xml.gz", "/sitemap-1.xml.gz", "/feed.xml")


class _Web:
    """The part of a world that is the same for all of them. A page that is gone is looked for twice.

    Pages are plain text, which takes no process of its own to read, unless their name ends in `.html`.
    """

    cannot: ClassVar[Mapping[str, str]]
    sure: ClassVar[bool] = False
    lists_all: ClassVar[bool] = False
    tells_moves: ClassVar[bool]
    foresees: ClassVar[frozenset[str]]
    interval: ClassVar[float] = RECRAWL_MAX + 60
    open_connector: ClassVar[Callable[[Any, Any], Connector]]

    def __init__(self, ground: Ground) -> None:
        ground.patch.setattr(fake, "SITEMAP_SIZE", 2)
        self.crawl = Crawl()
        self._site: Site = ground.servers.site
        for part in (self._site.pages, self._site.redirects, self._site.statuses):
            part.clear()
        self._site.reset()
        self._site.now = fake.BEGIN
        self._site.robots = "User-agent: *\nDisallow: /private/\nSitemap: {base}/sitemap-index.xml\n"
        self._texts: dict[str, str] = {}
        opener = self.crawl.opener(self._config, type(self).open_connector)
        self.house = SyncHouse(ground.settings(), ground.connection, self._config(), opener)

    def put(self, name: str, text: str) -> None:
        """See `World`."""
        path = self._path(name)
        self._site.statuses.pop(path, None)
        self._site.redirects.pop(path, None)
        media_type, body = "text/plain; charset=utf-8", text
        if name.endswith(".html"):
            media_type = "text/html; charset=utf-8"
            body = f"<!DOCTYPE html><html lang=en><title>{name}</title><body><main><p>{text}</p></main></body></html>"
        self._site.pages[path] = Page(name, text, self._edited(), media_type, body.encode())
        self._texts[name] = text

    def drop(self, name: str) -> None:
        """See `World`."""
        self._edited()
        self._site.delete(self._path(name))
        del self._texts[name]

    def move(self, name: str, to: str) -> None:
        """See `World`."""
        self._edited()
        self._site.move(self._path(name), self._path(to))
        self._texts[to] = self._texts.pop(name)

    def uri(self, name: str) -> str:
        """See `World`."""
        return self._site.url(self._path(name))

    def truth(self) -> dict[str, str]:
        """See `World`."""
        return {self.uri(name): " ".join(text.split()) for name, text in self._texts.items()}

    def downloads(self) -> int:
        """See `World`."""
        return sum(count for path, count in self._site.requests.items() if path.startswith("/page/"))

    @contextmanager
    def away(self) -> Iterator[None]:
        """See `World`."""
        with self._answering(503, *LISTS, *self._site.pages):
            yield

    @contextmanager
    def gap(self, name: str) -> Iterator[None]:
        """See `World`: one of the sitemaps fails."""
        at = list(self._site.pages).index(self._path(name)) // 2
        with self._answering(500, f"/sitemap-{at}.xml.gz"):
            yield

    @contextmanager
    def torn(self) -> Iterator[None]:
        """See `World`: from the second sitemap on they are not what they should be."""
        with self._answering(200, *(f"/sitemap-{number}.xml.gz" for number in range(1, 9))):
            yield

    @contextmanager
    def unreadable(self, name: str) -> Iterator[None]:
        """See `World`."""
        with self._answering(403, self._path(name)):
            yield

    @contextmanager
    def _answering(self, status: int, *paths: str) -> Iterator[None]:
        before = dict(self._site.statuses)
        self._site.statuses |= dict.fromkeys(paths, (status, {}))
        yield
        changed = {path: said for path, said in self._site.statuses.items() if path not in paths}
        self._site.statuses.clear()
        self._site.statuses |= changed | {path: before[path] for path in paths if path in before}

    def _edited(self) -> Any:
        """The time of an edit, which is that of the sync's clock and another one each time."""
        self._site.now = max(self._site.now.replace(microsecond=0), self.house.now)
        self._site.now += fake.timedelta(seconds=1)
        return self._site.now

    def _config(self) -> SyncConfig:
        raise NotImplementedError

    def _common(self) -> dict[str, Any]:
        return {
            "confirm_after": CONFIRM,
            "delay": 0,
            "recrawl_min": RECRAWL_MIN,
            "recrawl_max": RECRAWL_MAX,
            "full_every": 86_400,
        }

    def _path(self, name: str) -> str:
        return f"/page/{name}"


_NO_GAPS = {
    "torn": "its settings name the pages, so there is nothing that breaks off",
    "gap": "its settings name the pages, so none is left out",
}


class PagesWorld(_Web):
    """See `World`. The settings name every page that there ever was, at its first address."""

    cannot: ClassVar[Mapping[str, str]] = _NO_GAPS
    tells_moves: ClassVar[bool] = True
    foresees: ClassVar[frozenset[str]] = frozenset()
    open_connector = staticmethod(open_pages)

    def __init__(self, ground: Ground) -> None:
        self._named: dict[str, None] = {}
        super().__init__(ground)

    def put(self, name: str, text: str) -> None:
        """See `World`."""
        self._named[name] = None
        super().put(name, text)

    def _config(self) -> SyncConfig:
        urls = [self.uri(name) for name in self._named] or [self._site.url("/page/none")]
        return PagesConfig(type="pages", urls=tuple(urls), **self._common())


class SitemapWorld(_Web):
    """See `World`. A page that moves is found at its new address before its old one is asked for."""

    cannot: ClassVar[Mapping[str, str]] = {}
    tells_moves: ClassVar[bool] = False
    foresees: ClassVar[frozenset[str]] = frozenset({"changed", "missing"})
    open_connector = staticmethod(open_sitemap)

    def _config(self) -> SyncConfig:
        return SitemapConfig(type="sitemap", urls=(self._site.url("/"),), **self._common())


class FeedWorld(_Web):
    """See `World`. What a feed does not name (any more) is visited in its own time."""

    cannot: ClassVar[Mapping[str, str]] = {
        "torn": "a feed is read whole before its first entry counts",
        "gap": "nothing is concluded from what a feed leaves out",
    }
    tells_moves: ClassVar[bool] = False
    foresees: ClassVar[frozenset[str]] = frozenset({"changed"})
    open_connector = staticmethod(open_feed)

    def _config(self) -> SyncConfig:
        return FeedConfig(type="feed", urls=(self._site.url("/feed.xml"),), **self._common())
