"""What was erased to stay out: the table `kept_out` knows it by salted hashes, and the ledger takes no row for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from pipelines.errors import PermanentError

CODE = "kept_out"


def is_kept_out(connection: Connection[Any], tenant: str, uri: str) -> bool:
    """Whether a document must not come back, by itself or with all of its tenant."""
    return connection.execute("select is_kept_out(%s, %s)", (tenant, uri)).fetchone() == (True,)


def keep_out(connection: Connection[Any], tenant: str, uris: Sequence[str | None]) -> None:
    """Have documents stay out from now on; None stands for the whole tenant."""
    connection.cursor().executemany(
        "insert into kept_out (hash) values (erasure_hash(%s, %s)) on conflict do nothing",
        [(tenant, uri) for uri in uris],
    )


def allow(connection: Connection[Any], tenant: str, uri: str | None) -> bool:
    """Let a document, or with None a tenant, come back when it is met the next time. False if it was not kept out."""
    done = connection.execute("delete from kept_out where hash = erasure_hash(%s, %s)", (tenant, uri))
    return done.rowcount == 1


def refusal() -> PermanentError:
    """What a producer is told of such a document; its uri is not repeated, since errors are logged and stored."""
    return PermanentError(
        CODE, "this document was erased and is kept out", "if it may come back: gristmill erase --allow URI"
    )
