"""Idempotency keys: a request that is sent again is answered again, and done once.

The answer is remembered in the transaction that does the work, so there is no time between the two to die in. A
request counts as the same if its digest is: over its fields, its query and the SHA-256 of each of its files (not
over its raw body: the boundary of a form is new each time).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.types.json import Jsonb
from starlette.requests import Request

from worker.receivers.auth import Caller
from worker.receivers.problems import ProblemError

KEEP = "24 hours"
HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
MOST_KEY_LENGTH = 255


@dataclass(frozen=True, slots=True)
class Idempotency:
    """One request with a key. `scope` parts tenants, callers and paths, `request` digests what it asks for."""

    scope: str
    key: str
    request: bytes


@dataclass(frozen=True, slots=True)
class Remembered:
    """The answer that was given."""

    status: int
    response: dict[str, Any]


def idempotency_of(request: Request, caller: Caller, facts: Any) -> Idempotency | None:
    """What the `Idempotency-Key` of a request stands for; None if it has none.

    Args:
        facts: everything that the request asks for, as plain JSON types.

    Raises:
        ProblemError: 400, the key is not 1 to 255 visible ASCII characters.
    """
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not 1 <= len(key) <= MOST_KEY_LENGTH or not key.isascii() or not key.isprintable():
        raise ProblemError(
            400,
            "invalid_idempotency_key",
            f"an {HEADER} is 1 to {MOST_KEY_LENGTH} visible ASCII characters",
            "use a uuid",
        )
    text = json.dumps(facts, sort_keys=True, ensure_ascii=True, default=str)
    # The tenant first: an erasure looks for its answers by that (worker.erase_statements).
    scope = json.dumps([caller.tenant, caller.name, request.method, request.url.path], ensure_ascii=False)
    return Idempotency(scope, key, hashlib.sha256(text.encode()).digest())


def recall(connection: Connection[Any], wanted: Idempotency) -> Remembered | None:
    """The answer already given to this request; None if it is new, and then its key is ours until the commit.

    Call it inside the transaction that does the work.

    Raises:
        ProblemError: 409, the same key is being worked on this moment; 422, it came with another request.
    """
    mine = connection.execute(
        "select pg_try_advisory_xact_lock(hashtextextended(%s, 0))", (f"idempotency {wanted.scope} {wanted.key}",)
    ).fetchone()
    if mine != (True,):
        raise ProblemError(
            409,
            "idempotency_conflict",
            f"a request with this {HEADER} is being answered at this moment",
            "wait for its answer, or send it again in a second",
            headers={"Retry-After": "1"},
        )
    row = connection.execute(
        f"select request, status, response from idempotency_keys"
        f" where scope = %s and key = %s and created_at > now() - interval '{KEEP}'",
        (wanted.scope, wanted.key),
    ).fetchone()
    if row is None:
        return None
    if row[0] != wanted.request:
        raise ProblemError(
            422,
            "idempotency_key_reused",
            f"this {HEADER} came with another request before",
            "use a new key for every new request",
        )
    return Remembered(row[1], row[2])


def remember(connection: Connection[Any], wanted: Idempotency, status: int, response: dict[str, Any]) -> None:
    """Keep an answer, for a day."""
    connection.execute(
        "insert into idempotency_keys as i (scope, key, request, status, response) values (%s, %s, %s, %s, %s)"
        " on conflict (scope, key) do update set request = excluded.request, status = excluded.status,"
        " response = excluded.response, created_at = now()",
        (wanted.scope, wanted.key, wanted.request, status, Jsonb(response)),
    )


def say_more(connection: Connection[Any], wanted: Idempotency, status: int, response: dict[str, Any]) -> None:
    """Let an answer that is kept say what is known by now; one that was erased meanwhile stays erased."""
    connection.execute(
        "update idempotency_keys set status = %s, response = %s, created_at = now() where scope = %s and key = %s",
        (status, Jsonb(response), wanted.scope, wanted.key),
    )
