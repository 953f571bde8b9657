"""The place in memory: pages with ids that stay, as a wiki has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import ClassVar

from pipelines.errors import PermanentError, RetryableError, UnavailableError
from tests.fakes.place import Place, PlaceConnector
from tests.fakes.sync_house import SyncHouse
from tests.fakes.worlds.crawl import Crawl
from tests.fakes.worlds.ground import Ground
from tests.fakes.worlds.world import CONFIRM
from worker.connectors.config import SyncConfig
from worker.connectors.contract import Incomplete


class PlaceWorld:
    """See `World`. What a listing leaves out is asked for, twice."""

    cannot: ClassVar[Mapping[str, str]] = {}
    sure: ClassVar[bool] = False
    lists_all: ClassVar[bool] = True
    tells_moves: ClassVar[bool] = True
    foresees: ClassVar[frozenset[str]] = frozenset({"changed", "missing"})
    interval: ClassVar[float] = 60.0

    def __init__(self, ground: Ground) -> None:
        self.place = Place(at_once=False)
        self.crawl = Crawl()
        self._keys: dict[str, str] = {}
        self._versions = count(1)
        config = SyncConfig(type="place", every=60, confirm_after=CONFIRM)
        opener = self.crawl.opener(lambda: config, lambda _, surroundings: PlaceConnector(self.place, surroundings))
        self.house = SyncHouse(ground.settings(), ground.connection, config, opener)

    def put(self, name: str, text: str) -> None:
        """See `World`."""
        self.place.put(self._keys.setdefault(name, name), text, version=str(next(self._versions)))

    def drop(self, name: str) -> None:
        """See `World`."""
        self.place.drop(self._keys[name])

    def move(self, name: str, to: str) -> None:
        """See `World`. The key stays."""
        key = self._keys[to] = self._keys.pop(name)
        self.place.moved[key] = f"place:{to}"
        self.place.versions[key] = str(next(self._versions))

    def uri(self, name: str) -> str:
        """See `World`."""
        return f"place:{name}"

    def truth(self) -> dict[str, str]:
        """See `World`."""
        names = {key: name for name, key in self._keys.items()}
        return {self.uri(names[key]): " ".join(str(text).split()) for key, text in self.place.texts.items()}

    def downloads(self) -> int:
        """See `World`."""
        return len(self.place.visits)

    @contextmanager
    def away(self) -> Iterator[None]:
        """See `World`."""
        with self._faulty(lambda key: UnavailableError("away", "the place is away", "wait")):
            yield

    @contextmanager
    def gap(self, name: str) -> Iterator[None]:
        """See `World`."""
        self.place.gaps = [Incomplete("a part of the place cannot be listed", self.uri(name))]
        yield
        self.place.gaps = []

    @contextmanager
    def torn(self) -> Iterator[None]:
        """See `World`."""

        def fault(key: str) -> Exception | None:
            return RetryableError("torn", "the connection was cut", "wait") if key > "b" else None

        with self._faulty(fault):
            yield

    @contextmanager
    def unreadable(self, name: str) -> Iterator[None]:
        """See `World`."""
        key = self._keys[name]
        text = self.place.texts[key]
        self.place.texts[key] = PermanentError("denied", "it may not be read", "ask its owner")
        yield
        self.place.texts[key] = text

    @contextmanager
    def _faulty(self, fault: object) -> Iterator[None]:
        def raising(key: str) -> None:
            error = fault(key)  # type: ignore[operator]
            if error is not None:
                raise error

        self.place.listing_fault = raising
        yield
        self.place.listing_fault = lambda key: None
