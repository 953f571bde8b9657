"""A process that dies at a chosen moment: before one of the statements by which it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psycopg import Connection


class Killed(BaseException):
    """The process is gone. Nothing handles it; what is open is rolled back, as when a connection is lost."""


def kill_at(connection: Connection[Any], number: int) -> Callable[[], bool]:
    """Have the process die before its n-th write on this connection, counted from 0; tells whether it came to that."""
    left = number
    execute = connection.execute

    def dying(query: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal left
        text = query.decode() if isinstance(query, bytes) else str(query)
        if not text.lstrip().lower().startswith("select"):
            left -= 1
            if left < 0:
                raise Killed
        return execute(query, *args, **kwargs)

    connection.execute = dying  # type: ignore[method-assign]
    return lambda: left < 0
