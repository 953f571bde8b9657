"""Wake-ups: a message says that there is work, never what the work is."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

log = logging.getLogger(__name__)

INGEST_QUEUE = "ingest"
OCR_QUEUE = "ocr"
SEARCH_QUEUE = "search"
SYNC_QUEUE = "sync"
WAKE_TASK = "gristmill.wake"
OCR_TASK = "gristmill.ocr"
SYNC_TASK = "gristmill.sync"
REST_SECONDS = 5.0
"""For how long a producer says nothing to a broker that did not answer, so that a thousand files do not wait each."""

MOST_WAITING = 50
"""With so many wake-ups in its queue, another is of no use: each is worth as many documents as its worker finds."""

LOOK_EVERY = 10
"""A producer sends so many wake-ups before it looks how many wait: one alone costs nothing more."""

_TASKS = {INGEST_QUEUE: WAKE_TASK, OCR_QUEUE: OCR_TASK, SYNC_QUEUE: SYNC_TASK}


def transport_options(broker_url: str, *, visibility_timeout: float) -> dict[str, Any]:
    """Options for this scheme of broker; others would refuse them.

    With a Redis-protocol broker, an unacknowledged message comes back after `visibility_timeout` seconds, looked for
    every 5 s instead of every 100 s as by default. A broker that accepts connections and says nothing is given up after
    3 s by whoever publishes, and after about 20 s by the workers, by their health checks.
    """
    if not broker_url.startswith(("redis", "rediss", "valkey", "sentinel")):
        return {}
    options: dict[str, Any] = {
        "visibility_timeout": visibility_timeout,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "socket_connect_timeout": 2,
        "socket_timeout": 3,
    }
    if "+socket" not in broker_url:
        options["socket_keepalive"] = True
        options["health_check_interval"] = 10
    return options


class Broker:
    """Best-effort publisher. What it fails to say, the sweep says later."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._rests_until = 0.0
        self._unlooked: Counter[str] = Counter()

    def wake(self, count: int = 1, *, queue: str = INGEST_QUEUE) -> bool:
        """Tell the workers of a queue that there is work, unless enough wake-ups wait there to find it.

        Returns:
            False if the broker cannot be reached, or could not a moment ago: nothing is lost by that.
        """
        if time.monotonic() < self._rests_until:
            return False
        self._unlooked[queue] += count
        if self._unlooked[queue] > LOOK_EVERY:
            waiting = self.waiting(queue)
            if waiting is None:
                return self._rest("nobody tells how many wake-ups wait")
            if waiting >= MOST_WAITING:
                return True
            self._unlooked[queue] = count
        try:
            with self._app.producer_or_acquire() as producer:
                for _ in range(count):
                    self._app.send_task(_TASKS[queue], queue=queue, producer=producer, retry=False, ignore_result=True)
        except (OperationalError, OSError) as error:
            return self._rest(error)
        return True

    def _rest(self, cause: object) -> bool:
        log.warning("the broker does not answer, the sweep will announce the work: %s", cause)
        self._rests_until = time.monotonic() + REST_SECONDS
        return False

    def waiting(self, queue: str = INGEST_QUEUE) -> int | None:
        """Messages in a queue; None if the broker cannot be reached."""
        try:
            with self._app.connection_or_acquire() as connection:
                declared = connection.default_channel.queue_declare(queue, passive=True)
                return int(declared.message_count)
        except (OperationalError, OSError):
            return None
        except self._app.connection().connection_errors:
            return None  # the transport's own: Kombu wraps them where it connects, not while a call is under way
        except self._app.connection().channel_errors:
            return 0  # nobody has declared the queue yet
