"""A port of loopback for a server that another process is about to start."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port that the system gives to nobody until the end of the `with`, however long the server takes to start.

    Whoever asks for this very port and sets `SO_REUSEADDR`, as servers do, may listen there: nobody does yet.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])
