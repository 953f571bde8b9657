"""What the conformance suite asks of a place and of whatever keeps the index in step with it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import ClassVar, Protocol

from tests.fakes.sync_house import SyncHouse
from tests.fakes.worlds.crawl import Crawl
from tests.fakes.worlds.ground import Ground

CONFIRM = 3600.0
"""Seconds after which every world's syncs look once more for a document that is gone."""


class World(Protocol):
    """A place where documents come, change and go, and its sync. Documents have names, which may have slashes."""

    cannot: ClassVar[Mapping[str, str]]
    """Cases of the suite that it cannot express, and why."""

    sure: ClassVar[bool]
    """A document that is gone leaves at the first look that does not find it, not only at one `CONFIRM` later."""

    lists_all: ClassVar[bool]
    """Only listings tell what is gone; otherwise documents are visited in their own time, whatever a listing says."""

    tells_moves: ClassVar[bool]
    """A document that moves keeps its row."""

    foresees: ClassVar[frozenset[str]]
    """What a preview can name without a visit, of `changed` and `missing`; new documents always."""

    interval: ClassVar[float]
    """Seconds after which a run sees whatever has changed."""

    house: SyncHouse
    crawl: Crawl

    def __init__(self, ground: Ground) -> None: ...

    def put(self, name: str, text: str) -> None:
        """Have a document say this: a new one, one that is edited, or one that comes back."""

    def drop(self, name: str) -> None:
        """Delete it."""

    def move(self, name: str, to: str) -> None:
        """Give it another name."""

    def uri(self, name: str) -> str:
        """Its identity in the ledger."""

    def truth(self) -> dict[str, str]:
        """What the index has to say, by uri, with single spaces between words."""

    def downloads(self) -> int:
        """How often content was fetched from the place so far; 0 where that cannot be told."""

    def away(self) -> AbstractContextManager[object]:
        """The whole place cannot be reached."""

    def gap(self, name: str) -> AbstractContextManager[object]:
        """A listing cannot tell whether this document is there, and knows that."""

    def torn(self) -> AbstractContextManager[object]:
        """Listings break off after the first two documents or later."""

    def unreadable(self, name: str) -> AbstractContextManager[object]:
        """The document is named, but cannot be had, and can again at the end of the `with`."""
