"""What a workspace is made of, and the clock it may have."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from tests.fakes.notion.blocks import Block


class ManualClock:
    """A clock that stands still until it is moved; called, it tells the time."""

    def __init__(self, start: datetime = datetime(2026, 9, 1, 8, 0, 7, tzinfo=UTC)) -> None:
        self.time = start

    def __call__(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.time += timedelta(seconds=seconds)


class Parent(NamedTuple):
    """Where something is: `workspace`, `page`, `block`, `database` or `data_source`, and its id."""

    kind: str
    id: str = ""


class Said(NamedTuple):
    """What a page says: its title, and texts that its content must give."""

    title: str
    texts: list[str]


class Change(NamedTuple):
    """What happened, for webhooks: an event's type without more, and ids of the blocks or properties."""

    type: str
    entity: str
    id: str
    parent: Parent
    touched: list[str]
    at: datetime


@dataclass(slots=True, eq=False)
class Node:
    """A page (`kind` page), a database, or a data source."""

    kind: str
    id: str
    parent: Parent
    title: list[dict[str, Any]]
    created: datetime
    edited: datetime
    blocks: list[Block] = field(default_factory=list)
    properties: dict[str, tuple[str, Any]] = field(default_factory=dict)
    schema: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)
    inline: bool = False
    icon: dict[str, Any] | None = None
    cover: dict[str, Any] | None = None
    description: list[dict[str, Any]] = field(default_factory=list)
    shared: bool | None = None
    trashed: bool = False
    locked: bool = False
    indexed: tuple[str, datetime] | None = None
    pending: deque[tuple[datetime, str, datetime]] = field(default_factory=deque)


@dataclass(slots=True)
class StoredFile:
    """A file that was uploaded to the workspace."""

    id: str
    name: str
    content: bytes
    mime: str
