"""A place that documents come from, in memory: the smallest connector there is, as badly behaved as a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from worker.connectors.contract import (
    Absence,
    Connector,
    Document,
    Enclosure,
    Gone,
    Incomplete,
    Item,
    Known,
    Surroundings,
    Unchanged,
    Visit,
)


@dataclass
class Place:
    """What exists there, and how it behaves.

    Attributes:
        texts: by key; a text that is an exception is raised by the visit.
        versions: by key; a key without one is told of without a version.
        listing_fault: called before each item is listed.
        gaps: of each listing.
        again_in: of each document.
        hidden: keys that exist, but that no listing names.
        unwanted: keys that ask to be left out.
        files: by key, names and contents of the files that belong to a document.
        visits: keys, in order.
        listings: whether full, in order.
    """

    texts: dict[str, str | Exception] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    absence: Absence = "ask"
    incremental: bool = False
    content_addressed: bool = False
    at_once: bool = True
    listing_fault: Callable[[str], None] = lambda key: None
    gaps: list[Incomplete] = field(default_factory=list)
    again_in: float | None = None
    hidden: set[str] = field(default_factory=set)
    unwanted: set[str] = field(default_factory=set)
    moved: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, str]] = field(default_factory=dict)
    visits: list[str] = field(default_factory=list)
    listings: list[bool] = field(default_factory=list)
    cursors: list[Mapping[str, Any]] = field(default_factory=list)

    def put(self, key: str, text: str | Exception, version: str | None = "1") -> None:
        """Have a document there, with this text and version."""
        self.texts[key] = text
        if version is None:
            self.versions.pop(key, None)
        else:
            self.versions[key] = version

    def drop(self, key: str) -> None:
        """Have it there no more."""
        del self.texts[key]


class PlaceConnector(Connector):
    """The connector to a `Place`."""

    def __init__(self, place: Place, surroundings: Surroundings) -> None:
        self._place = place
        self.absence = place.absence
        self.incremental = place.incremental
        place.cursors.append(surroundings.cursor)

    def listing(self, *, full: bool) -> Iterator[Item | Incomplete]:
        """Everything that is not hidden."""
        self._place.listings.append(full)
        yield from self._place.gaps
        for key in sorted(self._place.texts):
            self._place.listing_fault(key)
            if key not in self._place.hidden:
                version = self._place.versions.get(key)
                yield Item(key, self._uri(key), version, content_addressed=self._place.content_addressed)

    def visit(self, key: str, known: Known | None, folder: Path) -> Visit:
        """The text, unless the state that was left says that it is the same."""
        place = self._place
        place.visits.append(key)
        text = place.texts.get(key)
        if isinstance(text, Exception):
            raise text
        if text is None:
            return Gone("it is not there", at_once=place.at_once)
        if key in place.unwanted:
            return Gone("it asks to be left out", unwanted=True)
        version = place.versions.get(key)
        uri = self._uri(key)
        if known and known.state.get("text") == text and known.uri == uri and key not in place.files:
            return Unchanged(version, known.state, place.again_in)
        enclosures = []
        for number, (name, content) in enumerate(place.files.get(key, {}).items()):
            path = folder / str(number)
            path.write_text(content)
            enclosures.append(Enclosure(name, f"{uri}#{name}", name, path))
        state = {"text": text}
        return Document(text.encode(), f"{key}.txt", uri, {"title": key}, version, state, place.again_in, enclosures)

    def cursor(self) -> Mapping[str, Any]:
        """How many listings there were."""
        return {"listings": len(self._place.listings)}

    def uri_of(self, key: str) -> str:
        """`place:KEY`."""
        return f"place:{key}"

    def pushed(self, event: Any) -> Sequence[str]:
        """The key that the event is."""
        return [event]

    def _uri(self, key: str) -> str:
        return self._place.moved.get(key, self.uri_of(key))
