"""Lets a test act in the middle of a run, whatever the connector."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from worker.connectors.config import SyncConfig
from worker.connectors.contract import Connector, Incomplete, Item, Known, Surroundings, Visit

Moment = Literal["listed", "before_visit", "after_visit"]


class Crawl:
    """What happens at moments of a run.

    Attributes:
        visits: how many there were so far.
    """

    def __init__(self) -> None:
        self.visits = 0
        self._plans: defaultdict[Moment, list[Callable[[], object]]] = defaultdict(list)

    def once(self, moment: Moment, do: Callable[[], object]) -> None:
        """Do something when this next happens: a first document was listed, one is about to be or was just fetched."""
        self._plans[moment].append(do)

    def reached(self, moment: Moment) -> None:
        """It happens."""
        plans, self._plans[moment] = self._plans[moment], []
        for do in plans:
            do()

    @property
    def waiting(self) -> bool:
        """Whether something that was planned has not happened."""
        return any(self._plans.values())

    def opener(
        self, config: Callable[[], SyncConfig], open_connector: Callable[[Any, Surroundings], Connector]
    ) -> Callable[[SyncConfig, Surroundings], Connector]:
        """An opener of connectors that are watched, with the settings of the moment."""
        return lambda _, surroundings: _Watched(open_connector(config(), surroundings), self)


class _Watched:
    def __init__(self, connector: Connector, crawl: Crawl) -> None:
        self._connector = connector
        self._crawl = crawl

    def listing(self, *, full: bool) -> Iterator[Item | Incomplete]:
        for entry in self._connector.listing(full=full):
            yield entry
            self._crawl.reached("listed")

    def visit(self, key: str, known: Known | None, folder: Path) -> Visit:
        self._crawl.visits += 1
        self._crawl.reached("before_visit")
        found = self._connector.visit(key, known, folder)
        self._crawl.reached("after_visit")
        return found

    def __enter__(self) -> _Watched:
        self._connector.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._connector.__exit__(*exception)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connector, name)
