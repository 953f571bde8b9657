"""Pages that the settings name one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from worker.connectors.contract import Absence, Incomplete, Item
from worker.connectors.web.canonical import fold
from worker.connectors.web.connector import WebConnector


class Pages(WebConnector):
    """A page that is no longer named is gone."""

    absence: ClassVar[Absence] = "gone"

    def listing(self, *, full: bool) -> Iterator[Item | Incomplete]:
        """See `Connector`."""
        self._begin()
        yield from self._items((fold(url), None) for url in self._config.urls)
