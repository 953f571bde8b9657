"""What was found in a page."""

from __future__ import annotations

from dataclasses import dataclass, field

from worker.connectors.notion.nodes import Node


@dataclass(frozen=True, slots=True)
class Media:
    """A file that a page shows.

    Attributes:
        kind: `image`, `file`, `pdf`, `video`, `audio`, as Notion calls its block.
        url: where it can be had now; signed and short-lived where `hosted`.
        block: the block's id; empty where it is not known, or where the file is the value of a property.
        name: what people call it; empty where only the address says so.
        hosted: Notion keeps it; False: it lies elsewhere; None: not known.
        place: the property that it is a value of; empty in the page itself.
    """

    kind: str
    url: str
    block: str = ""
    name: str = ""
    hosted: bool | None = None
    place: str = ""


@dataclass(slots=True)
class Content:
    """A page, or a part of one.

    Attributes:
        pages: ids of the pages right below it.
        databases: ids of the databases on it.
        unread: parts that could not be had, in plain words.
    """

    nodes: list[Node] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)
    databases: list[str] = field(default_factory=list)
    media: list[Media] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def take(self, other: Content) -> None:
        """Add what was found elsewhere, but for its nodes, which have a place of their own."""
        self.pages += other.pages
        self.databases += other.databases
        self.media += other.media
        self.unread += other.unread
