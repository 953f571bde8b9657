"""What the robots.txt of each host allows us (RFC 9309), asked once a run."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx
from protego import Protego

from pipelines.errors import PermanentError, RetryableError
from worker.connectors.contract import Surroundings
from worker.connectors.web.canonical import host_of
from worker.connectors.web.client import Client

MOST_BYTES = 500 * 2**10
MOST_DELAY = 60.0
KEPT_SECONDS = 86_400.0
MOST_KEPT_BYTES = 8 * MOST_BYTES
"""Of robots.txt of all hosts together; read, they take some forty times as much memory."""

KEPT_ERROR_SECONDS = 600.0
LEAST_SIZE = 500
"""Bytes that the rules of a host count as, even where there are none."""

_ABSENT = ("fetch_gone", "fetch_denied", "fetch_unusable")
_TOKEN = re.compile(r"[A-Za-z_-]+")


@dataclass(frozen=True)
class _Rules:
    """Of one origin: what it says, or why that cannot be known now."""

    since: datetime
    size: int = 0
    said: Protego | None = None
    error: RetryableError | None = None

    def hold(self, now: datetime) -> bool:
        kept = KEPT_SECONDS if self.error is None else KEPT_ERROR_SECONDS
        return (now - self.since).total_seconds() < kept


class Robots:
    """Rules by origin, asked for when the first address of it comes up and kept for this run, at most a day.

    Attributes:
        token: what we are called there: the first word of our agent's name, in lower case.
    """

    def __init__(self, client: Client, surroundings: Surroundings, agent: str) -> None:
        found = _TOKEN.match(agent)
        assert found is not None
        self.token = found[0].lower()
        self._client = client
        self._clock = surroundings.clock
        self._rules: dict[str, _Rules] = {}

    def allow(self, url: httpx.URL) -> bool:
        """Whether this address may be fetched; the host's `Crawl-delay` is heeded from then on, up to a minute.

        Raises:
            RetryableError: robots.txt is there but cannot be had now, so nothing may be fetched.
            PermanentError: its address may not be reached (`fetch_refused`), or its certificate does not hold.
        """
        return self._of(url).can_fetch(str(url), self.token)

    def sitemaps(self, url: httpx.URL) -> list[str]:
        """What the robots.txt of an address names as sitemaps; errors as `allow`."""
        return list(self._of(url).sitemaps)

    def _of(self, url: httpx.URL) -> Protego:
        origin = f"{url.scheme}://{host_of(url)}"
        known = self._rules.get(origin)
        if known is None or not known.hold(self._clock()):
            known = self._keep(origin, self._ask(origin))
            if known.said is not None:
                delay = known.said.crawl_delay(self.token)
                self._client.slow_down(url, min(delay or 0.0, MOST_DELAY))
        if known.error is not None:
            raise RetryableError(
                known.error.code, known.error.cause, known.error.remedy, retry_after=known.error.retry_after
            ) from known.error
        assert known.said is not None
        return known.said

    def _keep(self, origin: str, rules: _Rules) -> _Rules:
        """Keep these, and as many of the others as there is room for, the newest first."""
        self._rules.pop(origin, None)
        self._rules[origin] = rules
        left = sum(one.size for one in self._rules.values()) - MOST_KEPT_BYTES
        for oldest in list(self._rules)[:-1]:
            if left <= 0:
                break
            left -= self._rules.pop(oldest).size
        return rules

    def _ask(self, origin: str) -> _Rules:
        try:
            text = self._read(httpx.URL(f"{origin}/robots.txt"))
            return _Rules(self._clock(), LEAST_SIZE + len(text), said=Protego.parse(text))
        except RetryableError as error:
            told = RetryableError(error.code, f"robots.txt: {error.cause}", error.remedy, retry_after=error.retry_after)
            told.__cause__ = error
            return _Rules(self._clock(), LEAST_SIZE, error=told)
        except PermanentError as error:
            if error.code not in _ABSENT:
                raise
            # RFC 9309, 2.3.1.2 and 2.3.1.3: where there is none, or none that can be come to, nothing is closed.
            return _Rules(self._clock(), LEAST_SIZE, said=Protego.parse(""))

    def _read(self, url: httpx.URL) -> str:
        with tempfile.TemporaryDirectory(prefix="gristmill-") as folder:
            path = Path(folder) / "robots.txt"
            self._client.read(url, path, max_bytes=MOST_BYTES, cut=True)
            return path.read_bytes().decode("utf-8-sig", "replace")
