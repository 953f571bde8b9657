"""A web site crawled again and again: what each crawl asks for and transfers, and whether the index is the site.

A local site of some hundred pages with validators, redirects, sitemaps, robots.txt and errors; the real connector,
engine, worker and Postgres. Waits for politeness pass in simulated time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.database import connect
from sql.migrate import migrate
from tests.fakes.site import Site, site
from tests.fakes.sync_house import SyncHouse
from worker.connectors.registry import open_connector
from worker.connectors.web import SitemapConfig, WebConnector
from worker.embedded import start_services, stop_services
from worker.settings import Settings

HOUR = 3600.0
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Crawl:
    """One run.

    Attributes:
        received: bytes, headers included.
        waited: seconds that politeness took, in simulated time.
        seconds: of work besides, without the indexing.
    """

    name: str
    requests: int
    received: int
    waited: float
    seconds: float
    counts: dict[str, int]


class Crawler:
    """A sync with a site, and what is known of each of its runs."""

    def __init__(self, dsn: str, home: Path, source: Site) -> None:
        self.site = source
        self.crawls: list[Crawl] = []
        settings = Settings(database_url=dsn, home=home, fetch_allow=("127.0.0.1",))
        config = SitemapConfig(type="sitemap", urls=(source.url("/"),), recrawl_min=HOUR, recrawl_max=30 * DAY)
        self._opened: list[WebConnector] = []
        self.house = SyncHouse(settings, connect(dsn), config, self._open)

    def _open(self, config: Any, surroundings: Any) -> Any:
        self._opened.append(open_connector(config, surroundings))  # type: ignore[arg-type]
        return self._opened[-1]

    def close(self) -> None:
        """Give up connections."""
        self.house.close()
        self.house.connection.close()

    def crawl(self, name: str, *, later: float = 0.0) -> Crawl:
        """Run the sync and index what it brought."""
        self.site.reset()
        clock = self.house.now
        report = self.house.sync(later=later)
        found = Crawl(
            name,
            sum(self.site.requests.values()),
            self._opened[-1].bytes_in,
            (self.house.now - clock).total_seconds() - later,
            self.house.seconds,
            {key: count for key, count in report.counts.items() if count},
        )
        self.crawls.append(found)
        return found

    def pages(self) -> dict[str, str]:
        """What is found of the pages of the count, by path."""
        prefix = self.site.url("")
        return {
            uri.removeprefix(prefix): text
            for uri, text in self.house.index().items()
            if uri.removeprefix(prefix).startswith("/page/")
        }

    def truth(self) -> dict[str, str]:
        """What the pages of the count say, by path."""
        return {path: page.text for path, page in self.site.pages.items() if path.startswith("/page/")}

    def in_step(self) -> bool:
        """Whether every page is found with what it says now, and none besides."""
        truth, found = self.truth(), self.pages()
        return set(truth) == set(found) and all(text in found[path] for path, text in truth.items())


def live(crawler: Crawler) -> None:
    """Crawl a site four times: whole, unchanged, after a few changes, and once more to confirm what is gone."""
    source = crawler.site
    crawler.crawl("first")
    crawler.crawl("unchanged, each page asked for", later=31 * DAY)
    crawler.crawl("unchanged, an hour later", later=HOUR)
    for number in range(10, 15):
        source.edit(f"/page/{number}.html", f"Another text about boat {number}.")
    source.delete("/page/20.html")
    source.delete("/page/21.html", status=410)
    source.move("/page/30.html", "/page/moved.html")
    source.add("/page/new.html", "New", "A page about a new boat.")
    crawler.crawl("5 edited, 2 deleted, 1 moved, 1 new", later=HOUR)
    crawler.crawl("an hour later", later=1.1 * HOUR)


def main(arguments: Sequence[str]) -> int:
    """Crawl and print a line for each run; 1 where the index is not the site."""
    parser = argparse.ArgumentParser(prog="bench site", description=__doc__)
    parser.add_argument("--pages", type=int, default=500)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gm-", ignore_cleanup_errors=True) as name, site(chosen.pages) as source:
        place = Path(name)
        place.chmod(0o711)
        settings = Settings(home=place / "home")
        services = start_services(settings)
        try:
            migrate(services.database_url, dimensions=8)
            crawler = Crawler(services.database_url, place / "sync", source)
            live(crawler)
            for one in crawler.crawls:
                print(
                    f"{one.name:<36} {one.requests:>4} requests, {one.received:>8,} bytes,"
                    f" {one.waited:>5.0f} s of politeness, {one.seconds:>5.1f} s of work: {one.counts}"
                )
            print(f"index and site agree: {crawler.in_step()}; texts embedded: {crawler.house.embedder.texts}")
            good = crawler.in_step()
            crawler.close()
        finally:
            stop_services(settings)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
