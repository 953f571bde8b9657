"""Sitemaps: which pages a file of any of their formats names.

Source: the sitemaps protocol 0.9. Its limits are kept: 50,000 entries and 50 MB (52,428,800 bytes) a file, unpacked.
The files are anybody's, so XML is read as a stream that builds no tree, loads nothing and refuses a `DOCTYPE`: no
sitemap needs one, and entities come from nowhere else.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from lxml import etree

from pipelines.errors import PermanentError
from worker.connectors.web.feed import entries_of
from worker.unpacking import GZIP, Unpacking

MOST_ENTRIES = 50_000
MOST_BYTES = 52_428_800
MOST_CHARACTERS = 4_096  # of one address or date

_PIECE = 2**16
_GZIP = b"\x1f\x8b"
_ROOTS = {"urlset": "page", "sitemapindex": "sitemap"}
_FEEDS = ("rss", "feed", "RDF")
_W3C = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:T(\d\d):(\d\d)(?::(\d\d)(?:\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?)?)?", re.IGNORECASE
)
_TOLERANCE = timedelta(days=1)
_STAMPED = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a sitemap.

    Attributes:
        kind: `page`, or `sitemap` for a further file of an index.
        location: the address as it stands there.
        modified: when it was last changed, if it says so; for feeds whatever else tells one state from another.
    """

    kind: Literal["page", "sitemap"]
    location: str
    modified: str = ""


def read_sitemap(path: Path, url: str, content_type: str = "") -> Iterator[Entry]:
    """The entries of a file: XML, one address a line, RSS or Atom; any of them packed with gzip.

    Args:
        url: where it is from, for what is relative in a feed.
        content_type: as the server says; for the encoding of a feed.

    Raises:
        PermanentError: `sitemap_unusable`: it is none of these, is damaged, or goes over a limit. What was given
            before counts.
    """
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
    pieces = _unpacked(path) if packed else _plain(path)
    first = next(pieces, b"")
    if not first.strip():
        raise _unusable("the sitemap is empty")
    begin = first.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if begin == b"<" or first[:2] in (b"\xff\xfe", b"\xfe\xff"):
        yield from _from_xml(_again(first, pieces), url, content_type)
    else:
        yield from _from_lines(_again(first, pieces))


def moment(text: str) -> datetime | None:
    """The time of a W3C date and time (a profile of ISO 8601); UTC where it names no zone, None where it is none."""
    found = _W3C.fullmatch(text.strip())
    if found is None:
        return None
    year, month, day, hour, minute, second, zone = found.groups()
    try:
        when = datetime(
            int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=UTC
        )
    except ValueError:
        return None
    if zone and zone.upper() != "Z":
        shift = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
        try:
            return when - shift if zone[0] == "+" else when + shift
        except OverflowError:
            return None
    return when


def versions(entries: list[Entry], now: datetime) -> list[str | None]:
    """What each entry's date says of the version of its page; None where it says nothing.

    A date that is yet to come says nothing. Nor do the dates of a sitemap whose pages were, for the most part, all
    changed just now: such a file is stamped whenever somebody asks for it.
    """
    moments = [moment(entry.modified) for entry in entries]
    known = [when for when in moments if when is not None]
    fresh = sum(now - _STAMPED <= when <= now + _STAMPED for when in known)
    if len(known) > 2 and fresh * 2 > len(known):
        return [None] * len(entries)
    return [
        None if when is None or when > now + _TOLERANCE else entry.modified.strip()
        for entry, when in zip(entries, moments, strict=True)
    ]


def _unusable(what: str) -> PermanentError:
    return PermanentError("sitemap_unusable", what, "see that the sitemap keeps to the protocol of sitemaps.org")


def _again(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    """All pieces, never more of them than is allowed."""
    size = len(first)
    yield first
    for piece in rest:
        size += len(piece)
        if size > MOST_BYTES:
            raise _unusable(f"the sitemap has more than {MOST_BYTES:,} bytes")
        yield piece


def _plain(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def _unpacked(path: Path) -> Iterator[bytes]:
    unpacking = Unpacking(GZIP)
    try:
        for packed in _plain(path):
            yield from unpacking.unpack(packed)
    except zlib.error as error:
        raise _unusable("the sitemap is damaged: it cannot be unpacked") from error
    if not unpacking.whole:
        raise _unusable("the sitemap breaks off")


def _from_lines(pieces: Iterator[bytes]) -> Iterator[Entry]:
    count = 0
    rest = b""
    for piece in _ended(pieces):
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > MOST_CHARACTERS:
            raise _unusable("the file is no sitemap")
        for line in lines:
            text = line.decode("utf-8-sig", "replace").strip()
            if not text:
                continue
            if not text.lower().startswith(("http://", "https://")):
                raise _unusable("the file is no sitemap: it has lines that are no addresses")
            count += 1
            _check(count)
            yield Entry("page", text)


def _ended(pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield from pieces
    yield b"\n"


def _from_xml(pieces: Iterator[bytes], url: str, content_type: str) -> Iterator[Entry]:
    target = _Target()
    parser = etree.XMLParser(target=target, resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    seen: list[bytes] = []
    count = 0
    try:
        for piece in pieces:
            # Until it is known what it is: a feed is read as a whole.
            if not target.is_sitemap:
                seen.append(piece)
            if not target.is_feed:
                parser.feed(piece)
            for entry in target.taken():
                count += 1
                _check(count)
                yield entry
        if not target.is_feed:
            parser.close()
    except etree.XMLSyntaxError as error:
        yield from target.taken()
        raise _unusable(f"the sitemap is no sound XML: {error.msg}") from error
    yield from target.taken()
    if target.is_feed:
        for location, version in entries_of(b"".join(seen), url, content_type):
            count += 1
            _check(count)
            yield Entry("page", location, version or "")


def _check(count: int) -> None:
    if count > MOST_ENTRIES:
        raise _unusable(f"the sitemap has more than {MOST_ENTRIES:,} entries; the rest was left out")


class _Target:
    """Takes the parser's events, and keeps no more of them than the entry that is being read."""

    def __init__(self) -> None:
        self.is_feed = False
        self.is_sitemap = False
        self._kind: Literal["page", "sitemap"] = "page"
        self._depth = 0
        self._into: str | None = None
        self._size = 0
        self._found: dict[str, list[str]] = {}
        self._entries: list[Entry] = []

    def taken(self) -> list[Entry]:
        """The entries since the last time."""
        entries, self._entries = self._entries, []
        return entries

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        raise _unusable("the file is no sitemap: it begins with a DOCTYPE")

    def start(self, tag: str, attributes: Any) -> None:
        name = tag.rpartition("}")[2]
        if self._depth == 0:
            self.is_feed = name in _FEEDS
            if not self.is_feed and name not in _ROOTS:
                raise _unusable(f"the file is no sitemap: it is a <{name[:40]}>")
            self.is_sitemap = not self.is_feed
            self._kind = "sitemap" if _ROOTS.get(name) == "sitemap" else "page"
        self._depth += 1
        if self._depth == 2:
            self._found = {}
        # `image:loc` and its like lie deeper, or are of another namespace.
        self._into = name if self._depth == 3 and name in ("loc", "lastmod") else None
        self._size = 0

    def data(self, text: str) -> None:
        if self._into is None:
            return
        self._size += len(text)
        if self._size <= MOST_CHARACTERS:
            self._found.setdefault(self._into, []).append(text)

    def end(self, tag: str) -> None:
        self._into = None
        self._depth -= 1
        if self._depth == 1 and self.is_sitemap:
            location = "".join(self._found.get("loc", ())).strip()
            if location:
                self._entries.append(Entry(self._kind, location, "".join(self._found.get("lastmod", ())).strip()))

    def comment(self, text: str) -> None:
        """Says nothing to us, in the middle of an address as little as elsewhere."""

    def pi(self, target: str, data: str | None = None) -> None:
        """As a comment."""

    def close(self) -> None:
        """There is no tree to give."""
