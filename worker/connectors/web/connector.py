"""One visit to a web page, the same for all syncs of pages; what they list is their own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import httpx

from pipelines.errors import PermanentError, RetryableError
from worker.addresses import Resolve, parse_url, resolve
from worker.connectors.contract import (
    Absence,
    Connector,
    Document,
    Gone,
    Incomplete,
    Item,
    Known,
    Surroundings,
    Unchanged,
    Visit,
)
from worker.connectors.web.canonical import canonical_of, fold
from worker.connectors.web.client import Client
from worker.connectors.web.config import WebConfig
from worker.connectors.web.content import Fingerprint, fingerprint
from worker.connectors.web.interval import next_interval, spread
from worker.connectors.web.page import Head, canonical_link, head_of, told_noindex
from worker.connectors.web.robots import Robots
from worker.fetch import MAX_REDIRECTS, Reply, too_many_redirects

log = logging.getLogger(__name__)

PERMANENT = (301, 308)
_DISALLOWED = "robots.txt does not allow it"
_EXCLUDED = "the settings exclude it"
_NOINDEX = "it asks not to be indexed (noindex)"


class _DisallowedError(Exception):
    """An address on the way to the page may not be fetched, for this reason."""


@dataclass(frozen=True, slots=True)
class _State:
    """What a visit leaves for the next one, as JSON in `Known.state`.

    Attributes:
        uri: what it said the page is.
        final: the address that the page came from, after redirects; its validators are of this one.
        etag, modified: validators; empty where there are none.
        canonical: what the page said of itself, if it was believed.
        digest: SHA-256 of its bytes.
        text: SHA-256 of the text and title extracted from them; empty for other formats than HTML, and at first.
        interval: seconds, not spread.
    """

    uri: str = ""
    final: str = ""
    etag: str = ""
    modified: str = ""
    canonical: str = ""
    digest: str = ""
    text: str = ""
    interval: float | None = None

    @classmethod
    def of(cls, known: Known | None) -> _State:
        if known is None:
            return cls()
        return cls(**{name: known.state[name] for name in cls.__slots__ if name in known.state})

    def dump(self) -> dict[str, Any]:
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) not in ("", None)}

    def validators(self) -> dict[str, str]:
        found = {"If-None-Match": self.etag, "If-Modified-Since": self.modified}
        return {name: value for name, value in found.items() if value}


class WebConnector(Connector):
    """What syncs of pages share. Keys are addresses in normal form.

    Attributes:
        client: makes the requests; counts them and their bytes.
    """

    absence: ClassVar[Absence]
    incremental: ClassVar[bool] = False

    def __init__(self, config: WebConfig, surroundings: Surroundings, *, resolve: Resolve = resolve) -> None:
        self.client = Client(surroundings, agent=config.user_agent, delay=config.delay, resolve=resolve)
        self._config = config
        self._around = surroundings
        self._robots = Robots(self.client, surroundings, config.user_agent)
        self._listed: dict[str, str | None] = {}
        self._uris: dict[str, str] = {}

    @property
    def bytes_in(self) -> int:
        """Bytes received so far, headers included."""
        return self.client.bytes_in

    def visit(self, key: str, known: Known | None, folder: Path) -> Visit:
        """See `Connector`.

        A document is gone where the server says so (404, 410), where it asks not to be indexed or robots.txt has come
        to forbid it, and where the settings exclude it.
        """
        if not self._wanted(key):
            return Gone(_EXCLUDED, unwanted=True)
        # Of one that was missing it is not known what is left in the index.
        before = _State() if known is not None and known.missing else _State.of(known)
        path = folder / "content"
        try:
            reply, uri = self._follow(key, before, path)
        except _DisallowedError as error:
            return Gone(str(error), unwanted=True)
        except PermanentError as error:
            if error.code != "fetch_gone":
                raise
            return Gone(error.cause)
        if self._config.respect_robots and told_noindex(reply.robots, self._robots.token):
            return Gone(_NOINDEX, unwanted=True)
        if reply.status == 304:
            return self._unchanged(key, known, before, before)
        # Where the server tells what has changed, the first text is not worth its price: most pages never need it, and
        # one whose validators mean nothing is taken once too often.
        found = fingerprint(
            path,
            reply.name,
            self._around.settings,
            digest=before.digest,
            text=before.text,
            read=bool(before.digest) or not (reply.etag or reply.modified),
        )
        head = head_of(path, self._robots.token) if found.is_html else Head()
        if self._config.respect_robots and head.noindex:
            return Gone(_NOINDEX, unwanted=True)
        final = str(reply.url)
        said = canonical_link(reply.links) or head.canonical
        canonical = canonical_of(said, fold(final), self._config.hosts) or ""
        if not self._wanted(canonical):  # it would have another page under an address that is left out
            canonical = ""
        return self._read(key, known, before, reply, canonical, canonical or uri, found, path)

    def uri_of(self, key: str) -> str:
        """See `Connector`."""
        return key

    def _begin(self) -> None:
        """What a listing begins with."""
        self._listed.clear()
        self._uris = {known.key: known.uri for known in self._around.known() if known.uri != known.key}

    def _items(self, pages: Iterator[tuple[str, str | None]]) -> Iterator[Item]:
        """Pages with their versions as items, each once, without those that the settings exclude."""
        for key, version in pages:
            if key not in self._listed and self._wanted(key):
                self._listed[key] = version
                yield Item(key, self._uris.get(key, key), version)

    def _wanted(self, key: str) -> bool:
        path = urlsplit(key).path
        included = not self._config.include or any(fnmatchcase(path, one) for one in self._config.include)
        return included and not self._excluded(key)

    def _excluded(self, url: str) -> bool:
        path = urlsplit(url).path
        return any(fnmatchcase(path, one) for one in self._config.exclude)

    def _follow(self, key: str, before: _State, path: Path) -> tuple[Reply, str]:
        """The page, in `path` unless it is as before, and the uri that redirects give it.

        A redirect that is permanent moves the page; one that is not leaves it where it was, and so does whatever
        comes after it.
        """
        url = parse_url(key)
        uri, permanent = key, True
        seen: set[str] = set()
        while str(url) not in seen and len(seen) <= MAX_REDIRECTS:
            seen.add(str(url))
            if not self._allowed(url):
                raise _DisallowedError(_DISALLOWED)
            if self._excluded(fold(str(url))):
                raise _DisallowedError(_EXCLUDED)
            # Without its body, nothing can be said of a page that has got another uri.
            conditional = str(url) == before.final and (before.canonical or uri) == before.uri
            reply = self.client.request(url, path, validators=before.validators() if conditional else None)
            if reply.location is None:
                return reply, uri
            url = reply.location
            permanent = permanent and reply.status in PERMANENT
            if permanent:
                uri = fold(str(url))
        raise too_many_redirects(url)

    def _allowed(self, url: httpx.URL) -> bool:
        """Whether robots.txt allows it, or is not asked; errors as `Robots.allow`."""
        return not self._config.respect_robots or self._robots.allow(url)

    def _read(
        self,
        key: str,
        known: Known | None,
        before: _State,
        reply: Reply,
        canonical: str,
        uri: str,
        found: Fingerprint,
        path: Path,
    ) -> Visit:
        """A page whose bytes came: a document, unless it says what it said before and is where it was."""
        same = found.digest == before.digest or bool(found.text and found.text == before.text)
        now = _State(
            uri=uri,
            final=str(reply.url),
            etag=header_value(reply.etag),
            modified=header_value(reply.modified),
            canonical=canonical,
            digest=found.digest,
            text=found.text,
        )
        if same and uri == before.uri:
            return self._unchanged(key, known, before, now)
        interval = next_interval(before.interval, not same, self._config.recrawl_min, self._config.recrawl_max)
        return Document(
            content=path,
            filename=reply.name,
            uri=uri,
            metadata={"url": uri},
            version=self._version(key, known),
            state=_with_interval(now, interval),
            again_in=self._again_in(interval, key),
        )

    def _unchanged(self, key: str, known: Known | None, before: _State, now: _State) -> Unchanged:
        interval = next_interval(before.interval, False, self._config.recrawl_min, self._config.recrawl_max)
        return Unchanged(
            version=self._version(key, known),
            state=_with_interval(now, interval),
            again_in=self._again_in(interval, key),
        )

    def _version(self, key: str, known: Known | None) -> str | None:
        """As listed in this run, before the visit; else it is the one that was known."""
        if key in self._listed:
            return self._listed[key]
        return known.version if known is not None else None

    def _again_in(self, interval: float, key: str) -> float:
        return spread(interval, key, self._config.recrawl_min, self._config.recrawl_max)


def told(error: PermanentError | RetryableError, url: str) -> Incomplete:
    """What a failure to read a list means for a listing that goes on."""
    log.warning("%s: %s", url, error)
    return Incomplete(f"{url}: {error.cause}")


def _with_interval(state: _State, interval: float) -> dict[str, Any]:
    return {**state.dump(), "interval": interval}


def header_value(text: str) -> str:
    """A validator of an answer, if it can be sent back; else empty."""
    return text if text.isascii() and text.isprintable() and len(text) <= 1_024 else ""
