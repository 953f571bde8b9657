"""RSS and Atom: the pages that the entries of a feed link to."""

from __future__ import annotations

import calendar
import io
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import feedparser
from feedparser.encodings import convert_to_utf8
from lxml import etree

from pipelines.errors import PermanentError

MOST_BYTES = 10 * 2**20
DEEPEST = 100

_ENTITY = b"<!ENTITY"


def entries_of(data: bytes, url: str, content_type: str = "") -> Iterator[tuple[str, str | None]]:
    """Link and version of each entry, as they come.

    The version is when the entry was last updated, else when it was published, else its id.

    Args:
        url: where the feed is from; relative links start there.
        content_type: as the server says.

    Raises:
        PermanentError: `feed_unusable`: it is no feed.
    """
    told = {"content-location": url, "content-type": content_type or "application/xml"}
    try:
        _check_depth(data, url)
        _check_entities(data, told, url)
        # As a file: anything else might be taken for the name of one, or for an address to fetch.
        found = feedparser.parse(io.BytesIO(data), response_headers=told, sanitize_html=False)
    except PermanentError:
        raise
    except Exception as error:  # of a parser that anybody's bytes were given to
        raise PermanentError("feed_unusable", f"{url} cannot be read as a feed", "have the feed corrected") from error
    if not found.version:
        raise PermanentError(
            "feed_unusable", f"{url} is neither RSS nor Atom", "give the address of the feed itself"
        ) from found.get("bozo_exception")
    for entry in found.entries:
        link = entry.get("feedburner_origlink") or entry.get("link")
        if link:
            yield link, _version(entry)


class _Depth:
    """Watches how deep elements lie in each other."""

    def __init__(self) -> None:
        self._depth = 0
        self.too_deep = False

    def start(self, tag: str, attributes: Any) -> None:
        self._depth += 1
        self.too_deep = self.too_deep or self._depth > DEEPEST

    def end(self, tag: str) -> None:
        self._depth -= 1

    def close(self) -> None:
        """There is no tree to give."""


def _check_depth(data: bytes, url: str) -> None:
    """The time that `feedparser` takes for an element grows with the depth it lies at."""
    depth = _Depth()
    parser = etree.XMLParser(target=depth, recover=True, resolve_entities=False, no_network=True, load_dtd=False)
    parser.feed(data)
    if depth.too_deep:
        raise PermanentError("feed_unusable", f"{url} is no feed: its elements lie too deep in each other", "")


def _check_entities(data: bytes, told: dict[str, str], url: str) -> None:
    """`feedparser` lets entities be declared that hold text, so that a small file may say a gigabyte."""
    if _ENTITY in convert_to_utf8(told, data, {}):
        raise PermanentError("feed_unusable", f"{url} is no feed: it declares entities", "")


def _version(entry: Any) -> str | None:
    for name in ("updated_parsed", "published_parsed"):
        # Asked for by name, an update that is not there would be made up from the publication.
        if name in entry and entry[name] is not None:
            return datetime.fromtimestamp(calendar.timegm(entry[name]), UTC).isoformat()
    return entry.get("id") or None
