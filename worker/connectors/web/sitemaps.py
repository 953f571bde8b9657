"""All pages that the sitemaps of a site name."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar
from urllib.parse import urljoin, urlsplit

from pipelines.errors import PermanentError, RetryableError
from worker.addresses import parse_url
from worker.connectors.contract import Absence, Incomplete, Item
from worker.connectors.web.canonical import fold, foldable
from worker.connectors.web.connector import WebConnector, told
from worker.connectors.web.sitemap import MOST_BYTES, Entry, read_sitemap, versions

MOST_NESTED = 3
"""Levels of sitemaps; the protocol has two, an index and what it names."""
MOST_FILES = 50_000
MOST_PAGES = 1_000_000
"""Of all sitemaps together. A listing keeps the address of each in memory, and each would become a document."""

Failure = PermanentError | RetryableError


@dataclass(frozen=True, slots=True)
class _Sitemap:
    """A file to read.

    Attributes:
        hosts: of the pages that count.
        scope: what their paths begin with.
        level: how many indexes lead to it.
    """

    url: str
    hosts: frozenset[str | None]
    scope: str
    level: int = 0


class Sitemaps(WebConnector):
    """A page that is no longer named is asked for: many sitemaps name only what their author finds worth it."""

    absence: ClassVar[Absence] = "ask"

    def listing(self, *, full: bool) -> Iterator[Item | Incomplete]:
        """See `Connector`. A sitemap that fails makes it incomplete and does not stop it.

        Raises:
            PermanentError, RetryableError: no sitemap at all could be read; the first error.
        """
        self._begin()
        pending: deque[_Sitemap] = deque()
        errors: list[Failure] = []
        for url in self._config.urls:
            try:
                pending.extend(self._roots(url))
            except (PermanentError, RetryableError) as error:
                errors.append(error)
                yield told(error, url)
        seen: set[str] = set()
        good = 0
        cut = False
        while pending and len(seen) < MOST_FILES:
            one = pending.popleft()
            if one.url in seen:
                continue
            seen.add(one.url)
            entries, failure = self._entries(one.url)
            if failure is not None:
                errors.append(failure)
                yield told(failure, one.url)
            good += failure is None or bool(entries)
            yield from islice(self._items(self._pages(one, entries)), MOST_PAGES - len(self._listed))
            if len(self._listed) >= MOST_PAGES:
                yield Incomplete(f"there are more than {MOST_PAGES:,} pages")
                break
            for child in entries:
                if child.kind == "sitemap" and len(seen) + len(pending) >= MOST_FILES:
                    cut = True
                    break
                if child.kind == "sitemap":
                    refusal = self._add(child, one, pending)
                    if refusal:
                        yield Incomplete(f"{child.location}: {refusal}")
        if cut or (pending and len(seen) >= MOST_FILES):
            yield Incomplete(f"there are more than {MOST_FILES:,} sitemaps")
        if errors and not good:
            raise errors[0]

    def _roots(self, url: str) -> list[_Sitemap]:
        """Of a site, the sitemaps that its robots.txt names, else the one in the usual place."""
        hosts = frozenset((urlsplit(fold(url)).hostname, *self._config.hosts))
        parts = urlsplit(fold(url))
        if not parts.path.endswith("/") or parts.query:
            return [_Sitemap(fold(url), hosts, "/")]
        named = [foldable(urljoin(url, one)) for one in self._robots.sitemaps(parse_url(url))]
        found = [one for one in named if one is not None] or [urljoin(fold(url), "sitemap.xml")]
        # What robots.txt names may lie on another host, which is then meant (sitemaps.org, "cross submits").
        return [_Sitemap(one, hosts | {urlsplit(one).hostname}, parts.path) for one in found]

    def _entries(self, url: str) -> tuple[list[Entry], Failure | None]:
        """What a file names, as far as it could be read, and what went wrong."""
        entries: list[Entry] = []
        with tempfile.TemporaryDirectory(prefix="gristmill-") as folder:
            path = Path(folder) / "sitemap"
            try:
                # One byte more than is allowed, so that it is seen, and what comes before it is of use.
                reply = self.client.read(parse_url(url), path, max_bytes=MOST_BYTES + 1, cut=True)
                for entry in read_sitemap(path, str(reply.url), reply.content_type):
                    entries.append(entry)
            except (PermanentError, RetryableError) as error:
                return entries, error
        return entries, None

    def _pages(self, sitemap: _Sitemap, entries: list[Entry]) -> Iterator[tuple[str, str | None]]:
        pages = [entry for entry in entries if entry.kind == "page"]
        for entry, version in zip(pages, versions(pages, self._around.clock()), strict=True):
            key = foldable(entry.location)
            if key is None:
                continue
            parts = urlsplit(key)
            if parts.hostname in sitemap.hosts and parts.path.startswith(sitemap.scope):
                yield key, version

    def _add(self, child: Entry, parent: _Sitemap, pending: deque[_Sitemap]) -> str:
        """Have a file of an index read later; why it will not be, else empty."""
        url = foldable(child.location)
        if url is None:
            return "it is no address that could be fetched"
        if urlsplit(url).hostname not in parent.hosts:
            return "the sitemap lies on another host; name that in hosts if it belongs here"
        if parent.level + 1 >= MOST_NESTED:
            return f"indexes of sitemaps lie more than {MOST_NESTED - 1} deep in each other"
        pending.append(_Sitemap(url, parent.hosts, parent.scope, parent.level + 1))
        return ""
