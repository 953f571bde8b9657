"""A web site kept in step: what is transferred, what is obeyed, what leaves and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.site import DAY, HOUR, Crawler
from tests.fakes.site import site

PAGES = 24
NOT_PAGES = ("/robots.txt", "/sitemap")


@pytest.mark.timeout(600)
def test_a_site_is_kept_in_step_and_only_what_changed_is_transferred(dsn: str, tmp_path: Path) -> None:
    with site(PAGES) as source:
        crawler = Crawler(dsn, tmp_path / "home", source)
        try:
            first = crawler.crawl("first")
            assert crawler.in_step()
            assert source.requests["/private/1"] == 0, "robots.txt does not allow it"
            assert first.waited >= 2 * (first.requests - 3), "robots.txt asks for two seconds between requests"
            assert first.counts["left out"] == 3, "robots.txt, and noindex in HTML and in a header"
            embedded = crawler.house.embedder.texts

            crawler.crawl("all are asked for again", later=31 * DAY)
            transferred = {path for path, size in source.sent.items() if size and not path.startswith(NOT_PAGES)}
            whole = {"/nonce", "/plain"}  # without validators
            whole |= {"/hidden", "/secret-header"}  # left out so far, so nothing is known that could be compared
            assert transferred == whole
            assert crawler.house.embedder.texts == embedded

            source.edit("/page/10.html", "Another text about boat 10.")
            source.delete("/page/20.html")
            source.delete("/page/21.html", status=410)
            source.move("/page/22.html", "/page/moved.html")
            source.add("/page/new.html", "New", "A page about a new boat.")
            rows = crawler.house.rows()
            changed = crawler.crawl("after changes", later=HOUR)
            pages = {path for path in crawler.truth() if source.sent[path]}
            assert pages == {"/page/10.html", "/page/moved.html", "/page/new.html"}
            assert changed.counts["missing"] == 2
            assert {"/page/20.html", "/page/21.html"} <= set(crawler.pages()), "one look is not enough"
            moved = crawler.house.rows()[source.url("/page/moved.html")]
            assert moved == rows[source.url("/page/22.html")], "a page that moved keeps its row"

            crawler.crawl("the second look", later=1.1 * HOUR)
            assert crawler.in_step()
            # One chunk a page: the edited one and the new one.
            assert crawler.house.embedder.texts == embedded + 2
        finally:
            crawler.close()
