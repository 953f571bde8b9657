"""What worlds stand on: a database, a folder, and servers that start when the first world needs them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

from tests.fakes.object_server import ObjectServer, serving_objects
from tests.fakes.site import Site, site
from worker.settings import Settings

GUARD_MINIMUM = 4
MAX_BYTES = 20_000


class Servers:
    """Those that the tests of a module share."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    @cached_property
    def objects(self) -> ObjectServer:
        """An S3 server."""
        return self._stack.enter_context(serving_objects())

    @cached_property
    def site(self) -> Site:
        """A web site."""
        return self._stack.enter_context(site(0, specials=False))


@dataclass
class Ground:
    """Where one test's world is put up.

    Attributes:
        folder: an empty one of its own.
        patch: undone at the end of the test.
    """

    dsn: str
    connection: Connection[Any]
    folder: Path
    servers: Servers
    patch: pytest.MonkeyPatch
    stack: ExitStack = field(default_factory=ExitStack)

    def settings(self, **more: Any) -> Settings:
        """Settings with small chunks and a guard that a handful of deletions sets off."""
        values: dict[str, Any] = {
            "database_url": self.dsn,
            "home": self.folder / "home",
            "chunk_tokens": 32,
            "chunk_overlap_tokens": 0,
            "delete_guard_minimum": GUARD_MINIMUM,
            "max_bytes": MAX_BYTES,
            "fetch_allow": ("127.0.0.0/8",),
            "stability_seconds": 0.01,
        }
        return Settings.model_validate(values | more)
