"""The pages that RSS and Atom feeds link to."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pipelines.errors import PermanentError, RetryableError
from worker.addresses import Resolve, parse_url, resolve
from worker.connectors.contract import Absence, Incomplete, Item, Surroundings
from worker.connectors.web.canonical import fold, foldable
from worker.connectors.web.config import WebConfig
from worker.connectors.web.connector import WebConnector, header_value, told
from worker.connectors.web.feed import MOST_BYTES, entries_of


class Feeds(WebConnector):
    """A feed names what is new, so nothing follows from what it leaves out; a feed that has not changed names nothing.

    An entry may link to any host: the feed's author chose it.
    """

    absence: ClassVar[Absence] = "nothing"
    incremental: ClassVar[bool] = True

    def __init__(self, config: WebConfig, surroundings: Surroundings, *, resolve: Resolve = resolve) -> None:
        super().__init__(config, surroundings, resolve=resolve)
        self._validators: dict[str, dict[str, str]] = dict(surroundings.cursor.get("feeds", {}))

    def listing(self, *, full: bool) -> Iterator[Item | Incomplete]:
        """See `Connector`. Not `full`, a feed is asked only whether it has changed.

        Raises:
            PermanentError, RetryableError: no feed could be read; the first error.
        """
        self._begin()
        errors: list[PermanentError | RetryableError] = []
        for url in self._config.urls:
            try:
                pages = self._pages(fold(url), full)
            except (PermanentError, RetryableError) as error:
                errors.append(error)
                yield told(error, url)
            else:
                yield from self._items(iter(pages))
        if len(errors) == len(self._config.urls):
            raise errors[0]

    def cursor(self) -> Mapping[str, Any]:
        """The validators of the feeds."""
        urls = {fold(url) for url in self._config.urls}
        return {"feeds": {url: known for url, known in self._validators.items() if url in urls}}

    def _pages(self, url: str, full: bool) -> list[tuple[str, str | None]]:
        known = {} if full else self._validators.get(url, {})
        address = parse_url(url)
        if not self._allowed(address):
            raise PermanentError("robots_disallowed", "robots.txt does not allow it", "ask the owner of the site")
        with tempfile.TemporaryDirectory(prefix="gristmill-") as folder:
            path = Path(folder) / "feed"
            reply = self.client.read(address, path, validators=known, max_bytes=MOST_BYTES)
            if reply.status == 304:
                return []
            found = list(entries_of(path.read_bytes(), str(reply.url), reply.content_type))
        given = {"If-None-Match": header_value(reply.etag), "If-Modified-Since": header_value(reply.modified)}
        self._validators[url] = {name: value for name, value in given.items() if value}
        return [(key, version) for link, version in found if (key := foldable(link)) is not None]
