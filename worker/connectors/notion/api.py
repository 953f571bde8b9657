"""Calls to Notion's API through `notion-client`, with patience of our own.

Its own retries are switched off: they leave out server errors of POST (here all are reads that may be repeated), do
not know 529, and cut a long `Retry-After` to a minute. Written against `reference/status-codes` and
`reference/request-limits` as of 2026.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, cast

import httpx
from notion_client import Client
from notion_client.errors import (
    HTTPResponseError,
    NotionClientErrorBase,
    RequestTimeoutError,
    UnknownHTTPResponseError,
)

from pipelines.errors import ConfigurationError, PermanentError, RetryableError, UnavailableError
from worker.connectors.contract import Surroundings
from worker.connectors.notion.config import API_VERSION, NotionConfig

Json = dict[str, Any]

PAGE_SIZE = 100
MOST_LISTED = 5_000
"""Pages of one list, of so many values each."""

TRIES = 5
TIMEOUTS = 2
"""Tries that may end without an answer within the minute that Notion gives itself."""

FIRST_DELAY = 1.0
LONGEST_WAIT = 60.0
"""Seconds that are waited inside a run, as long as the window of Notion's budget; asked for more, the run ends."""

_BUSY = (429, 503, 529)
_PASSING = (*_BUSY, 409, 500, 502, 504)

_VERSION = re.compile(r"notion-version|api version", re.IGNORECASE)

log = logging.getLogger(__name__)


class HiddenError(PermanentError):
    """The object is not shared with the connection, or there is no such object: Notion does not say which."""


class RefusedError(PermanentError):
    """Notion does not take the request as it is (400), e.g. since it has no way to give blocks of this type."""


class NoSuchCallError(PermanentError):
    """Notion does not know the call: another version of the API, or a server that stands in for it."""


class NotionApi:
    """What is asked of Notion in one run, from one thread.

    Attributes:
        requests: how many were sent.
    """

    def __init__(
        self, config: NotionConfig, surroundings: Surroundings, token: str, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.requests = 0
        self._wait = surroundings.wait
        self._gap = 1.0 / config.requests_per_second
        self._free_at = 0.0
        self._gave_up = 0
        self._http = httpx.Client(transport=transport)
        self._client = Client(
            auth=token,
            base_url=config.base_url.rstrip("/"),
            notion_version=API_VERSION,
            retry=False,
            client=self._http,
            logger=log,
            log_level=logging.ERROR,
        )

    def close(self) -> None:
        """Give up connections."""
        self._http.close()

    def page(self, page: str) -> Json:
        """A page's properties, parent and times."""
        return self._call(lambda: self._client.pages.retrieve(page), f"page {page}")

    def markdown(self, page: str) -> Json:
        """A page, or a block of one, as enhanced Markdown, with the transcripts of meetings.

        Raises:
            NoSuchCallError: this server has no such endpoint.
        """
        return self._call(
            lambda: self._client.pages.retrieve_markdown(page, include_transcript="true"), f"the text of page {page}"
        )

    def block(self, block: str) -> Json:
        """One block."""
        return self._call(lambda: self._client.blocks.retrieve(block), f"block {block}")

    def children(self, block: str) -> Iterator[Json]:
        """The blocks right below a page or block, in order.

        Raises:
            PermanentError: the list does not end.
        """

        def fetch(cursor: Json) -> Json:
            return self._call(
                lambda: self._client.blocks.children.list(block, page_size=PAGE_SIZE, **cursor), f"blocks of {block}"
            )

        yield from _all(fetch, f"the list of blocks below {block}")

    def property_items(self, page: str, name: str) -> Iterator[Json]:
        """The values of a property that is too long for the page object."""

        def fetch(cursor: Json) -> Json:
            return self._call(
                lambda: self._client.pages.properties.retrieve(page, name, page_size=PAGE_SIZE, **cursor),
                f"a property of page {page}",
            )

        yield from _all(fetch, f"the values of a property of page {page}")

    def database(self, database: str) -> Json:
        """A database: a container of data sources."""
        return self._call(lambda: self._client.databases.retrieve(database), f"database {database}")

    def data_source(self, source: str) -> Json:
        """A data source: what has the rows."""
        return self._call(lambda: self._client.data_sources.retrieve(source), f"data source {source}")

    def query(self, source: str, **body: Any) -> Json:
        """One page of a data source's rows."""
        return self._call(
            lambda: self._client.data_sources.query(source, page_size=PAGE_SIZE, **body),
            f"rows of data source {source}",
        )

    def search(self, what: str, *, in_trash: bool = False, **body: Any) -> Json:
        """One page of all that is shared, of the kind `page` or `data_source`, last edited first."""
        found = {"property": "object", "value": what} | ({"in_trash": True} if in_trash else {})
        return self._call(
            lambda: self._client.search(
                filter=found,
                sort={"timestamp": "last_edited_time", "direction": "descending"},
                page_size=PAGE_SIZE,
                **body,
            ),
            "the search",
        )

    def _call(self, send: Callable[[], Any], what: str) -> Json:
        """Send a request until it is answered or patience ends.

        Raises:
            HiddenError, RefusedError, NoSuchCallError, PermanentError: about this object.
            RetryableError: this object, not now.
            UnavailableError: Notion is away, or asks to wait.
            ConfigurationError: the token is not valid.
        """
        for attempt in range(1, TRIES + 1):
            self._pace()
            try:
                answer = send()
                if not isinstance(answer, Mapping):
                    raise ValueError("not a JSON object")
            except HTTPResponseError as error:
                if error.status not in _PASSING:
                    self._gave_up = 0
                    _raise_final(error, what)
                asked = _retry_after(error.headers)
                if attempt == TRIES or (asked or 0) > LONGEST_WAIT:
                    self._give_up(f"Notion answers {error.status} for {what}", error.status in _BUSY, asked, error)
                self._wait(asked if asked is not None else _delay(attempt))
            except (httpx.RequestError, RequestTimeoutError, ValueError) as error:
                if attempt >= (TIMEOUTS if isinstance(error, RequestTimeoutError) else TRIES):
                    away = isinstance(error, httpx.NetworkError)
                    self._give_up(f"no answer from Notion for {what}: {str(error)[:200]}", away, None, error)
                self._wait(_delay(attempt))
            except NotionClientErrorBase as error:
                raise RefusedError("notion_refused", f"{what} cannot be asked for: {error}", "") from error
            else:
                self._gave_up = 0
                return cast(Json, answer)
        raise AssertionError

    def _pace(self) -> None:
        early = self._free_at - time.monotonic()
        if early > 0:
            self._wait(early)
        self._free_at = time.monotonic() + self._gap
        self.requests += 1

    def _give_up(self, cause: str, away: bool, asked: float | None, error: Exception) -> NoReturn:
        self._gave_up += 1
        if away or self._gave_up > 1:
            raise UnavailableError(
                "notion_unavailable", cause, "nothing: the next run tries again", retry_after=asked
            ) from error
        raise RetryableError("notion_failed", cause, "nothing: the next run tries again") from error


def _raise_final(error: HTTPResponseError, what: str) -> NoReturn:
    code = str(getattr(error.code, "value", error.code))
    said = str(error)[:300]
    if error.status == 401:
        raise ConfigurationError(
            "notion_token",
            "Notion does not accept the token",
            "set NOTION_TOKEN, or token of this sync, to that of a connection that exists",
        ) from error
    if error.status == 403 and isinstance(error, UnknownHTTPResponseError):
        raise RetryableError(
            "notion_failed",
            f"something before Notion answers 403 for {what}",
            "see which proxy or firewall lies between; the next run tries again",
        ) from error
    if error.status == 403 or (error.status == 404 and code == "object_not_found"):
        raise HiddenError(
            "notion_hidden",
            f"{what} is not shared with the connection, or there is none",
            "share it with the connection in Notion: ••• › Connections",
        ) from error
    if error.status == 404 or code == "invalid_request_url" or (error.status == 400 and _VERSION.search(said)):
        raise NoSuchCallError("notion_no_such_call", f"Notion does not know how to give {what}: {said}", "") from error
    if error.status == 400:
        raise RefusedError("notion_refused", f"{what} is not given by Notion: {said}", "") from error
    raise PermanentError("notion_failed", f"Notion answers {error.status} for {what}: {said}", "") from error


def _retry_after(headers: Mapping[str, str]) -> float | None:
    text = str(headers.get("retry-after") or "").strip()
    return float(text[:9]) if text.isascii() and text.isdigit() else None


def _delay(attempt: int) -> float:
    return FIRST_DELAY * 2.0 ** (attempt - 1) * random.uniform(0.75, 1.25)


def _all(fetch: Callable[[Json], Json], what: str) -> Iterator[Json]:
    cursor: Json = {}
    seen: set[str] = set()
    while True:
        answer = fetch(cursor)
        results = answer.get("results")
        yield from results if isinstance(results, list) else [answer]
        following = answer.get("next_cursor")
        if not answer.get("has_more"):
            return
        if not isinstance(following, str) or following in seen or len(seen) + 1 >= MOST_LISTED:
            raise PermanentError("notion_endless", f"{what} does not end", "")
        seen.add(following)
        cursor = {"start_cursor": following}
