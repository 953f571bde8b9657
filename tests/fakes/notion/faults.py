"""What goes wrong and when: scripted, by chance, for a time, or since the budget is spent."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from random import Random
from typing import Literal

Kind = Literal[
    "rate_limited",  # 429, with Retry-After
    "overloaded",  # 529 service_overload, with Retry-After where one is given
    "internal",  # 500
    "bad_gateway",  # 502, a proxy's HTML
    "unavailable",  # 503
    "database_unavailable",  # 503 database_connection_unavailable
    "gateway_timeout",  # 504
    "conflict",  # 409
    "unauthorized",  # 401, as after a token was revoked
    "restricted",  # 403
    "not_found",  # 404 for something that is there
    "slow",  # answers after `seconds`, or when `release()` is called or the server stops
    "cut",  # the connection is closed in the middle of the body
    "cut_json",  # half a JSON document, with the length it claims
    "dropped",  # the connection is closed without an answer
    "html",  # a proxy's page, with status 200
    "repeat_cursor",  # a list whose next cursor leads to the same page again
    "incomplete",  # a query that says that it does not name everything
]

ERRORS: dict[str, tuple[int, str, str]] = {
    "rate_limited": (429, "rate_limited", "You have been rate limited. Please try again in a few minutes."),
    "overloaded": (529, "service_overload", "Notion is overloaded. Try again later."),
    "internal": (500, "internal_server_error", "Unexpected error occurred."),
    "unavailable": (503, "service_unavailable", "Notion is unavailable, please try again later."),
    "database_unavailable": (503, "database_connection_unavailable", "Notion's database is unavailable."),
    "gateway_timeout": (504, "gateway_timeout", "Notion timed out while attempting to complete this request."),
    "conflict": (409, "conflict_error", "Conflict occurred while saving. Please try again."),
    "unauthorized": (401, "unauthorized", "API token is invalid."),
    "restricted": (403, "restricted_resource", "Insufficient permissions for this endpoint."),
    "not_found": (404, "object_not_found", "Could not find the object."),
}
"""Status, code and message of the faults that are error bodies in JSON."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        retry_after: seconds, whole; no header without.
        reason: `additional_data.rate_limit_reason`.
        seconds: that `slow` takes.
    """

    kind: Kind
    retry_after: int | None = None
    reason: str | None = None
    seconds: float = 60.0


@dataclass(slots=True)
class _Scripted:
    fault: Fault
    on: str
    left: float
    skip: int


class Faults:
    """Decides for each request. Endpoints are the names in `server.ROUTES`; patterns as in a shell.

    Args:
        clock: of the world.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._scripted: list[_Scripted] = []
        self._chances: list[tuple[float, Sequence[Fault], str, Random]] = []
        self._outages: list[tuple[datetime, datetime, Fault, str]] = []
        self._budget: int | None = None
        self._window, self._spent = 0, 0

    def script(self, fault: Kind | Fault, *, on: str = "*", times: float = 1, skip: int = 0) -> None:
        """Answer the next requests with a fault.

        Args:
            on: which endpoints.
            times: how many requests; `math.inf` for all.
            skip: requests that are let through before.
        """
        with self._lock:
            self._scripted.append(_Scripted(_fault(fault), on, times, skip))

    def chance(self, share: float, faults: Sequence[Kind | Fault], *, seed: int, on: str = "*") -> None:
        """Let a share (0 to 1) of the requests go wrong, each in one of these ways."""
        with self._lock:
            self._chances.append((share, [_fault(fault) for fault in faults], on, Random(seed)))

    def outage(self, start: datetime, end: datetime, fault: Kind | Fault = "unavailable", *, on: str = "*") -> None:
        """Let everything fail from one time of the world's clock to another."""
        with self._lock:
            self._outages.append((start, end, _fault(fault), on))

    def budget(self, requests: int | None) -> None:
        """Give the connection so many requests in each minute of the world's clock; None for as many as it likes."""
        with self._lock:
            self._budget = requests

    def clear(self) -> None:
        """Behave from now on; the budget stays."""
        with self._lock:
            self._scripted.clear()
            self._chances.clear()
            self._outages.clear()

    def next(self, endpoint: str) -> Fault | None:
        """What happens to a request that has just come."""
        with self._lock:
            now = self.clock()
            for start, end, fault, on in self._outages:
                if start <= now < end and fnmatchcase(endpoint, on):
                    return fault
            if spent := self._over_budget(now):
                return spent
            for scripted in self._scripted:
                if scripted.left > 0 and fnmatchcase(endpoint, scripted.on):
                    if scripted.skip > 0:
                        scripted.skip -= 1
                        continue
                    scripted.left -= 1
                    return scripted.fault
            for share, faults, on, random in self._chances:
                if fnmatchcase(endpoint, on) and random.random() < share:
                    return random.choice(faults)
            return None

    def _over_budget(self, now: datetime) -> Fault | None:
        window = int(now.timestamp() // 60)
        if window != self._window:
            self._window, self._spent = window, 0
        self._spent += 1
        if self._budget is None or self._spent <= self._budget:
            return None
        left = math.ceil((window + 1) * 60 - now.timestamp())
        return Fault("rate_limited", retry_after=left, reason="connection_limit")


def _fault(named: Kind | Fault) -> Fault:
    return named if isinstance(named, Fault) else Fault(named, reason="connection_limit", **_DEFAULTS.get(named, {}))


_DEFAULTS: dict[str, dict[str, int]] = {"rate_limited": {"retry_after": 1}}
