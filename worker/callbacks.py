"""Callbacks: tells the addresses that producers gave what became of their documents.

The table `callbacks` is an outbox. A row is due once its version of the source is done, failed, dead or deleted; it
is claimed before the call by moving `next_at` past any time the call could take, so a process that dies in between
costs a delay and nothing else. Every call of a row has the same `webhook-id`: receivers may get one twice, and know it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import psycopg
from psycopg import Connection
from psycopg.rows import class_row

from pipelines.errors import ConfigurationError, GristmillError, PermanentError, RetryableError, UnavailableError
from worker.addresses import Boundary, Resolve, parse_url, resolve
from worker.database import open_database
from worker.embedded import Services
from worker.exchange import Deadline, exchange, retry_after
from worker.receivers.signatures import signer
from worker.settings import Settings

log = logging.getLogger(__name__)

MOST_ATTEMPTS = 8
BACKOFF_SECONDS = (5.0, 30.0, 120.0, 600.0, 1_800.0, 7_200.0, 21_600.0)
CALL_SECONDS = 10.0
CLAIM_SECONDS = 60.0

# After the last attempt `next_at` is infinity: never again, and the error stays for people to read.
CLAIM = """
update callbacks c set attempts = c.attempts + 1, next_at = now() + make_interval(secs => %(claim)s)
from sources s
where s.id = c.source_id and c.id = (
  select due.id from callbacks due join sources of on of.id = due.source_id
  where due.delivered_at is null and due.next_at <= now() and due.attempts < %(most)s
    and (of.done_version >= due.version or (of.state in ('failed', 'dead') and of.version >= due.version))
  order by due.next_at, due.id
  limit 1
  for update of due skip locked
)
returning c.id, c.source_id, c.version, c.url, c.attempts, s.uri, s.done_version, s.state, s.chunks, s.created_at,
  s.error_code, s.error_cause, s.error_remedy
"""

DELIVERED = "update callbacks set delivered_at = clock_timestamp(), error = null where id = %s"

FAILED = """
update callbacks set error = %(error)s, next_at = case
  when %(delay)s::float8 is null then 'infinity' else clock_timestamp() + make_interval(secs => %(delay)s) end
where id = %(id)s
"""


@dataclass(frozen=True, slots=True)
class Callback:
    """A claimed row, with what is to be told."""

    id: int
    source_id: int
    version: int
    url: str
    attempts: int
    uri: str
    done_version: int
    state: str
    chunks: int | None
    created_at: datetime
    error_code: str | None
    error_cause: str | None
    error_remedy: str | None

    @property
    def webhook_id(self) -> str:
        """The same for every attempt, and for no other callback of any installation."""
        facts = [self.id, self.source_id, self.version, self.url, self.created_at.isoformat()]
        return "cb_" + hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    @property
    def outcome(self) -> str:
        """What became of the version: done, deleted, failed or dead; a newer version may be under way already."""
        if self.done_version < self.version or self.state == "deleted":
            return self.state
        return "done"

    def body(self) -> bytes:
        """What is sent, as JSON."""
        error = None
        if self.outcome in ("failed", "dead"):
            error = {"code": self.error_code, "cause": self.error_cause, "remedy": self.error_remedy}
        return json.dumps(
            {
                "source_id": self.source_id,
                "uri": self.uri,
                "version": self.version,
                "state": self.outcome,
                "chunks": self.chunks,
                "error": error,
            },
            ensure_ascii=False,
        ).encode()


def deliver_due(
    connection: Connection[Any], settings: Settings, *, seconds: float = 30.0, resolve: Resolve = resolve
) -> int:
    """Make the calls that are due, one after the other, until none is left or the time is up.

    Addresses are guarded like those of pages (`worker.addresses`): only public ones and those of `fetch_allow`. No
    redirect is followed. Anything but a 2xx is tried again, eight times over about nine hours; a refused address, or a
    410, is final at once.

    Returns:
        How many were delivered.

    Raises:
        ConfigurationError: see `check_settings`.
        psycopg.OperationalError: the database is away; nothing is lost.
    """
    check_settings(settings)
    delivered = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until and (callback := _claim(connection)):
        try:
            _call(callback, settings, resolve)
        except GristmillError as error:
            delay = _delay(callback, error)
            cause = str(error).replace("\0", "")[:1000]
            connection.execute(FAILED, {"id": callback.id, "error": cause, "delay": delay})
            log.warning(
                "callback %d of source %d, attempt %d: %s%s",
                callback.id,
                callback.source_id,
                callback.attempts,
                error.cause,
                "; given up" if delay is None else "",
            )
        else:
            connection.execute(DELIVERED, (callback.id,))
            delivered += 1
    return delivered


def check_settings(settings: Settings) -> None:
    """Refuse settings that would turn every callback into a failure.

    Raises:
        ConfigurationError: `callback_secret` is not `whsec_` and Base64, or `fetch_allow` names what is no host.
    """
    Boundary.of(settings.fetch_allow)
    if settings.callback_secret is not None:
        try:
            signer(settings.callback_secret)
        except ValueError as error:
            raise ConfigurationError(
                "invalid_setting",
                f"GRISTMILL_CALLBACK_SECRET is not valid: {error}",
                "make one: openssl rand -base64 24",
            ) from error


def forget_delivered(connection: Connection[Any]) -> int:
    """Remove callbacks that were delivered a month ago; how many. Those given up stay, with their errors."""
    return connection.execute("delete from callbacks where delivered_at < now() - interval '30 days'").rowcount


def run_callbacks(settings: Settings, services: Services, stop: threading.Event) -> None:
    """Deliver what is due every `sweep_seconds` until told to stop. Outlives a database that goes away.

    Beside the sweep, not within it: a receiver that is slow to answer must not hold back wake-ups.

    Raises:
        ConfigurationError: at once, see `check_settings`.
    """
    check_settings(settings)
    connection: Connection[Any] | None = None
    while not stop.wait(settings.sweep_seconds):
        try:
            if connection is None or connection.closed or connection.broken:
                connection = open_database(settings, services, application="gristmill callbacks")
            deliver_due(connection, settings)
        except (UnavailableError, psycopg.OperationalError) as error:
            log.warning("callbacks wait: %s", str(error).strip().splitlines()[0])
            connection = None
    if connection is not None:
        connection.close()


def _claim(connection: Connection[Any]) -> Callback | None:
    with connection.cursor(row_factory=class_row(Callback)) as cursor:
        return cursor.execute(CLAIM, {"claim": CLAIM_SECONDS, "most": MOST_ATTEMPTS}).fetchone()


def _call(callback: Callback, settings: Settings, resolve: Resolve) -> None:
    url = parse_url(callback.url)
    body = callback.body()
    headers = {"Content-Type": "application/json", **_signature(callback, settings, body)}
    deadline = Deadline(CALL_SECONDS)
    with exchange("POST", url, settings, deadline, headers=headers, content=body, resolve=resolve) as response:
        status = response.status
        wait = retry_after(response)
    if not 200 <= status < 300:
        raise _failure(url, status, wait)


def _signature(callback: Callback, settings: Settings, body: bytes) -> dict[str, str]:
    """The headers of Standard Webhooks; without a secret only the id, to know a call that comes twice."""
    now = datetime.now(UTC)
    headers = {"webhook-id": callback.webhook_id, "webhook-timestamp": str(int(now.timestamp()))}
    if settings.callback_secret is not None:
        signature = signer(settings.callback_secret).sign(callback.webhook_id, now, body.decode())
        headers["webhook-signature"] = signature
    return headers


def _failure(url: httpx.URL, status: int, wait: float | None) -> GristmillError:
    said = f"{url.host} answers {status}"
    if status == 410:
        return PermanentError("callback_gone", f"{said}: it wants no more calls", "")
    if status in (429, 503):
        return UnavailableError("callback_failed", said, "", retry_after=wait)
    return RetryableError("callback_failed", said, "")


def _delay(callback: Callback, error: GristmillError) -> float | None:
    """Seconds until the next attempt; None for never."""
    if not isinstance(error, RetryableError) or callback.attempts >= MOST_ATTEMPTS:
        return None
    longest = BACKOFF_SECONDS[callback.attempts - 1]
    return max(random.uniform(longest / 2, longest), error.retry_after or 0.0)
