"""Webhooks: the handshake, and signed events that are gathered, doubled, lost, shuffled and tried again."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from http.client import HTTPConnection, HTTPException
from random import Random
from typing import Any
from urllib.parse import urlsplit

from tests.fakes.notion.nodes import Change, Parent
from tests.fakes.notion.render import NEW, exact_time
from tests.fakes.notion.world import World

GATHERED = ("page.content_updated", "page.properties_updated", "data_source.content_updated")
"""Types of which several in a short time make one event."""

ATTEMPTS = 8


def signature(token: str, body: bytes) -> str:
    """The value of `X-Notion-Signature` for a body as it is sent."""
    return "sha256=" + hmac.new(token.encode(), body, hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Delivery:
    """An attempt that was made; status 0 where nobody answered."""

    event: dict[str, Any]
    status: int


@dataclass(slots=True)
class _Waiting:
    event: dict[str, Any]
    due: datetime


class Webhooks:
    """One subscription. Events wait until `deliver()` is called and the world's clock says that they are due.

    Args:
        url: where events go, by plain HTTP.
        token: the verification token, which signs them.
        gather: seconds that changes of one page are gathered for.
        doubled: the share (0 to 1) of events that are sent twice.
        lost: the share that are never sent.
        shuffled: events that are due are sent in any order.

    Attributes:
        deliveries: every attempt.
    """

    def __init__(
        self,
        world: World,
        url: str,
        token: str,
        *,
        gather: float = 60,
        doubled: float = 0,
        lost: float = 0,
        shuffled: bool = False,
        seed: int = 0,
        api_version: str = NEW,
    ) -> None:
        self.world = world
        self.url = url
        self.token = token
        self.gather = timedelta(seconds=gather)
        self.doubled = doubled
        self.lost = lost
        self.shuffled = shuffled
        self.api_version = api_version
        self.deliveries: list[Delivery] = []
        self._subscription, self._connection = world.new_id(), world.new_id()
        self._random = Random(seed)
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._asleep = True
        world.watch(self._heard)

    def handshake(self) -> int:
        """Send the verification token, unsigned; the subscription is active from now on. Gives the status."""
        status = self._post({"verification_token": self.token}, signed=False)
        self._asleep = False
        return status

    def pending(self) -> int:
        """How many events wait."""
        with self._lock:
            return len(self._waiting)

    def deliver(self, *, everything: bool = False) -> list[Delivery]:
        """Send what is due by the world's clock, or everything; what fails waits for its next attempt."""
        now = self.world.clock()
        with self._lock:
            due = [one for one in self._waiting if everything or one.due <= now]
            self._waiting = [one for one in self._waiting if one not in due]
            if self.shuffled:
                self._random.shuffle(due)
            else:
                due.sort(key=lambda one: one.due)
        made = []
        for one in due:
            if self._random.random() < self.lost:
                continue
            for _ in range(2 if self._random.random() < self.doubled else 1):
                made.append(Delivery(one.event, self._post(one.event)))
            attempt = one.event["attempt_number"]
            if not 200 <= made[-1].status < 300 and attempt < ATTEMPTS:
                later = now + timedelta(minutes=2**attempt)
                with self._lock:
                    self._waiting.append(_Waiting({**one.event, "attempt_number": attempt + 1}, later))
        self.deliveries += made
        return made

    def _heard(self, change: Change) -> None:
        if self._asleep:
            return
        with self._lock:
            if change.type in GATHERED:
                for waiting in self._waiting:
                    event = waiting.event
                    if (event["type"], event["entity"]["id"]) == (change.type, change.id):
                        for key, more in _data(change).items():
                            if isinstance(more, list):
                                event["data"][key] += [one for one in more if one not in event["data"][key]]
                        event["timestamp"] = exact_time(change.at)
                        return
            due = change.at + (self.gather if change.type in GATHERED else timedelta(0))
            self._waiting.append(_Waiting(self._event(change), due))

    def _event(self, change: Change) -> dict[str, Any]:
        return {
            "id": self.world.new_id(),
            "timestamp": exact_time(change.at),
            "workspace_id": self.world.workspace_id,
            "workspace_name": "Fake workspace",
            "subscription_id": self._subscription,
            "integration_id": self._connection,
            "authors": [{"id": self.world.user_id, "type": "person"}],
            "attempt_number": 1,
            "api_version": self.api_version,
            "type": change.type,
            "entity": {"id": change.id, "type": change.entity},
            "data": {"parent": self._parent(change.parent), **_data(change)},
        }

    def _parent(self, parent: Parent) -> dict[str, str]:
        if parent.kind == "workspace":
            return {"id": self.world.workspace_id, "type": "space"}
        if parent.kind == "data_source":
            database = self.world.nodes[parent.id].parent.id
            return {"id": database, "type": "database", "data_source_id": parent.id}
        return {"id": parent.id, "type": parent.kind}

    def _post(self, said: dict[str, Any], *, signed: bool = True) -> int:
        body = json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json"}
        if signed:
            headers["X-Notion-Signature"] = signature(self.token, body)
        where = urlsplit(self.url)
        connection = HTTPConnection(where.netloc, timeout=60)
        try:
            connection.request("POST", f"{where.path or '/'}?{where.query}".rstrip("?"), body, headers)
            return connection.getresponse().status
        except (OSError, HTTPException):
            return 0
        finally:
            connection.close()


def _data(change: Change) -> dict[str, Any]:
    if change.type == "page.properties_updated":
        return {"updated_properties": list(change.touched)}
    if change.type.endswith(".content_updated"):
        kind = "page" if change.entity == "data_source" else "block"
        return {"updated_blocks": [{"id": id_, "type": kind} for id_ in change.touched]}
    return {}
