"""A workspace in memory: pages, databases, files and who may see them, with a clock of its own."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

from tests.fakes.notion import properties as values
from tests.fakes.notion.blocks import Block, from_markdown, media, rich, texts_of, texts_of_rich
from tests.fakes.notion.nodes import Change, ManualClock, Node, Parent, Said, StoredFile


class World:
    """The workspace. Every method may be called from any thread.

    Args:
        clock: tells the time; a `ManualClock` unless given.
        seed: of the ids; the same for the same calls.
        index_lag: seconds from a change until search knows of it.

    Attributes:
        manual: the clock that is used unless another is given; `manual.advance(seconds)`.
        unsearchable: ids that search never returns, since it is not guaranteed to be exhaustive.
        query_limit: rows a query of a data source gives at most, over all pages of its answer.
        markdown_on: False answers the Markdown endpoint like a route that does not exist.
        markdown_limit: blocks a page's Markdown shows at most.
        markdown_lists_unsupported: blocks that Markdown cannot show are also in `unknown_block_ids`.
        paging: `keyset`: a cursor remembers the last row; `offset`: it counts rows, so an edit meanwhile shifts them.
    """

    def __init__(self, clock: Callable[[], datetime] | None = None, *, seed: int = 0, index_lag: float = 0) -> None:
        self.manual = ManualClock()
        self.clock = clock or self.manual
        self.index_lag = index_lag
        self.unsearchable: set[str] = set()
        self.query_limit = 10_000
        self.markdown_on = True
        self.markdown_limit = 20_000
        self.markdown_lists_unsupported = False
        self.paging = "keyset"
        self.lock = threading.RLock()
        self.nodes: dict[str, Node] = {}
        self.blocks: dict[str, Block] = {}
        self.files: dict[str, StoredFile] = {}
        self._random = Random(seed)
        self._watchers: list[Callable[[Change], None]] = []
        self.workspace_id, self.bot_id, self.user_id = self.new_id(), self.new_id(), self.new_id()

    def new_id(self) -> str:
        """A fresh id."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def watch(self, heard: Callable[[Change], None]) -> None:
        """Have every change told, under the world's lock."""
        self._watchers.append(heard)

    # Making things

    def create_page(
        self,
        parent: str | Parent | None = None,
        title: str = "",
        blocks: Sequence[Block] = (),
        *,
        markdown: str = "",
        properties: Mapping[str, tuple[str, Any]] | None = None,
        icon: str | None = None,
    ) -> str:
        """Make a page: in the workspace (shared with the connection), below a page, or as a row of a data source.

        Args:
            parent: the id of a page or a data source.
            properties: type and value by name, as `properties.value` takes them; the title is made from `title`.
        """
        with self.lock:
            where, now = self._parent(parent), self.clock()
            page = Node("page", self.new_id(), where, rich(title), now, now)
            page.icon = {"type": "emoji", "emoji": icon} if icon else None
            page.shared = True if where.kind == "workspace" else None
            for name, (kind, simple) in (properties or {}).items():
                page.properties[name] = (kind, values.value(kind, simple))
            self.nodes[page.id] = page
            self._place(page, "child_page")
            self._adopt(page, [*blocks, *from_markdown(markdown)], page.blocks)
            self._tell(page, "page.created", [])
            if where.kind == "data_source":
                source = self.nodes[where.id]
                self._tell(source, "data_source.content_updated", [page.id], index=False)
            return page.id

    def create_database(
        self,
        parent: str | Parent | None = None,
        title: str = "",
        schema: Mapping[str, str] | None = None,
        *,
        inline: bool = False,
    ) -> tuple[str, str]:
        """Make a database with one data source; gives the ids of both. `schema`: types by name, besides the title."""
        with self.lock:
            where, now = self._parent(parent), self.clock()
            database = Node("database", self.new_id(), where, rich(title), now, now, inline=inline)
            database.shared = True if where.kind == "workspace" else None
            self.nodes[database.id] = database
            self._place(database, "child_database")
            return database.id, self.create_data_source(database.id, title, schema)

    def create_data_source(self, database: str, title: str, schema: Mapping[str, str] | None = None) -> str:
        """Add a data source to a database."""
        with self.lock:
            now = self.clock()
            source = Node("data_source", self.new_id(), Parent("database", database), rich(title), now, now)
            kinds = {"Name": "title", **(schema or {})}
            for name, kind in kinds.items():
                # Ids of properties come encoded for addresses, and hold what has to be.
                id_ = "title" if kind == "title" else f"%3A{self._random.getrandbits(16):04x}%7C"
                source.schema[name] = {"id": id_, "name": name, "type": kind, "description": None}
            self.nodes[source.id] = source
            self.nodes[database].sources.append(source.id)
            self._tell(source, "data_source.created", [])
            return source.id

    def store_file(self, name: str, content: bytes, mime: str = "application/octet-stream") -> str:
        """Upload a file; its id is what `blocks.media` and a `files` property take."""
        with self.lock:
            made = StoredFile(self.new_id(), name, content, mime)
            self.files[made.id] = made
            return made.id

    # Changing things

    def edit(
        self,
        page: str,
        blocks: Sequence[Block] = (),
        *,
        markdown: str = "",
        append: bool = False,
        silent: bool = False,
    ) -> None:
        """Change what a page says. `silent` leaves `last_edited_time` as it is, as some edits through the API did."""
        with self.lock:
            node = self.nodes[page]
            touched = [*blocks, *from_markdown(markdown)]
            if not append:
                for gone in node.blocks:
                    if gone.id not in self.nodes:
                        self._forget(gone)
                node.blocks = [kept for kept in node.blocks if kept.id in self.nodes]
            self._adopt(node, touched, node.blocks)
            if not silent:
                node.edited = self.clock()
            self._tell(node, "page.content_updated", [one.id for one in touched], index=not silent)

    def rename(self, node: str, title: str) -> None:
        """Give a page, a database or a data source another title."""
        with self.lock:
            named = self.nodes[node]
            named.title, named.edited = rich(title), self.clock()
            # The documents tell of a title as content; of a row it is one of its properties.
            row = named.parent.kind == "data_source"
            event = "page.properties_updated" if row else f"{named.kind}.content_updated"
            self._tell(named, event, ["title"] if row else [node])

    def set_properties(self, page: str, properties: Mapping[str, tuple[str, Any]]) -> None:
        """Set some properties of a page."""
        with self.lock:
            node = self.nodes[page]
            for name, (kind, simple) in properties.items():
                node.properties[name] = (kind, values.value(kind, simple))
            node.edited = self.clock()
            self._tell(node, "page.properties_updated", [self.property_id(node, name) for name in properties])

    def add_file(self, page: str, name: str, content: bytes, *, kind: str = "file", caption: str = "") -> str:
        """Append a block with an uploaded file to a page; gives the file's id."""
        with self.lock:
            stored = self.store_file(name, content)
            self.edit(page, [media(kind, stored, caption, name)], append=True)
            return stored

    def move(self, page: str, parent: str | Parent | None) -> None:
        """Put a page elsewhere, with all below it. Its `last_edited_time` stays."""
        with self.lock:
            node = self.nodes[page]
            self._unplace(node)
            node.parent = self._parent(parent)
            self._place(node, "child_page" if node.kind == "page" else "child_database")
            self._tell(node, f"{node.kind}.moved", [])

    def trash(self, node: str) -> None:
        """Put a page or a database in the trash, with all below it."""
        self._set_trashed(node, True)

    def restore(self, node: str) -> None:
        """Take a page or a database out of the trash."""
        self._set_trashed(node, False)

    def purge(self, node: str) -> None:
        """Delete for good, as the trash does after 30 days: unknown from now on."""
        with self.lock:
            gone = self.nodes.pop(node)
            self._unplace(gone)
            for below in [one.id for one in self.nodes.values() if one.parent.id == node]:
                self.purge(below)
            for one in gone.blocks:
                self._forget(one)

    def unshare(self, node: str) -> None:
        """Take the connection's access away, with all below that is not shared by itself. Nobody is told."""
        with self.lock:
            self.nodes[node].shared = False

    def share(self, node: str) -> None:
        """Give the connection access, with all below."""
        with self.lock:
            self.nodes[node].shared = True
            self._index(self.nodes[node])

    # Asking

    def accessible(self, node: Node | None) -> bool:
        """Whether the connection sees it."""
        while node is not None:
            if node.shared is not None:
                return node.shared
            node = self.above(node)
        return False

    def in_trash(self, node: Node | None) -> bool:
        """Whether it, or something above it, is in the trash."""
        while node is not None:
            if node.trashed:
                return True
            node = self.above(node)
        return False

    def above(self, node: Node) -> Node | None:
        """What it is below of; None for the workspace."""
        if node.parent.kind == "block":
            holder = self.blocks.get(node.parent.id)
            return self.nodes.get(holder.page) if holder else None
        return self.nodes.get(node.parent.id)

    def node(self, id_: str, kind: str) -> Node | None:
        """A page, database or data source that the connection sees."""
        found = self.nodes.get(id_)
        return found if found is not None and found.kind == kind and self.accessible(found) else None

    def block(self, id_: str) -> Block | None:
        """A block of a page that the connection sees; pages and databases are blocks too."""
        found = self.blocks.get(id_)
        owner = self.nodes.get(id_) or (self.nodes.get(found.page) if found else None)
        return found if found and owner and self.accessible(owner) else None

    def children(self, one: Block) -> list[Block] | None:
        """The blocks below one, without what is in the trash; None where the original is not to be seen."""
        node = self.nodes.get(one.id)
        if node is not None:
            below = node.blocks
        elif one.type == "synced_block" and (origin := one.payload["synced_from"]):
            original = self.block(origin["block_id"])
            if original is None:
                return None
            below = original.children
        else:
            below = one.children
        return [kept for kept in below if not self._is_trashed(kept)]

    def search_state(self, node: Node) -> tuple[str, datetime] | None:
        """What search knows of it by now: its title and when it was edited; None while it is not in the index."""
        while node.pending and node.pending[0][0] <= self.clock():
            _, title, edited = node.pending.popleft()
            node.indexed = (title, edited)
        return node.indexed

    def truth(self) -> dict[str, Said]:
        """What every page says that is shared and not in the trash, by id."""
        with self.lock:
            pages = [node for node in self.nodes.values() if node.kind == "page"]
            return {
                page.id: Said("".join(texts_of_rich(page.title)), self._texts(page.blocks))
                for page in pages
                if self.accessible(page) and not self.in_trash(page)
            }

    def property_id(self, page: Node, name: str) -> str:
        """The id of a page's property."""
        source = self.nodes.get(page.parent.id) if page.parent.kind == "data_source" else None
        return source.schema[name]["id"] if source and name in source.schema else "title"

    def _texts(self, blocks: Sequence[Block]) -> list[str]:
        found = []
        for one in blocks:
            if one.id in self.nodes or one.refuses is not None:
                continue
            below = [] if one.type == "template" else self.children(one) or []
            # A transcript has to be asked for, and what a template makes is not there yet.
            found += [*texts_of(one), *self._texts(below[:2] if one.type == "meeting_notes" else below)]
        return found

    # Keeping it in order

    def _parent(self, parent: str | Parent | None) -> Parent:
        if parent is None:
            return Parent("workspace")
        if isinstance(parent, Parent):
            return parent
        return Parent(self.nodes[parent].kind, parent) if parent in self.nodes else Parent("block", parent)

    def _siblings(self, where: Parent) -> list[Block] | None:
        if where.kind == "page":
            return self.nodes[where.id].blocks
        return self.blocks[where.id].children if where.kind == "block" else None

    def _place(self, node: Node, kind: str) -> None:
        """Show it in what it is below of, as a block with the same id."""
        shown = Block(kind, id=node.id, parent=node.parent.id, page=node.id, created=node.created, edited=node.edited)
        self.blocks[node.id] = shown
        siblings = self._siblings(node.parent)
        if siblings is not None:
            siblings.append(shown)

    def _unplace(self, node: Node) -> None:
        if node.parent.id in self.nodes or node.parent.id in self.blocks:
            siblings = self._siblings(node.parent)
            if siblings is not None:
                siblings.remove(self.blocks[node.id])
        self.blocks.pop(node.id, None)

    def _adopt(self, page: Node, blocks: Sequence[Block], into: list[Block], parent: str = "") -> None:
        now = self.clock()
        for one in blocks:
            one.id, one.page, one.parent = one.id or self.new_id(), page.id, parent or page.id
            one.created, one.edited = now, now
            self.blocks[one.id] = one
            if into is not one.children and one not in into:
                into.append(one)
            self._adopt(page, list(one.children), one.children, one.id)

    def _forget(self, one: Block) -> None:
        self.blocks.pop(one.id, None)
        for below in one.children:
            self._forget(below)

    def _is_trashed(self, one: Block) -> bool:
        return one.id in self.nodes and self.nodes[one.id].trashed

    def _set_trashed(self, id_: str, trashed: bool) -> None:
        with self.lock:
            node = self.nodes[id_]
            node.trashed, node.edited = trashed, self.clock()
            for one in [node, *(self.nodes[source] for source in node.sources)]:
                self._tell(one, f"{one.kind}.{'deleted' if trashed else 'undeleted'}", [])

    def _index(self, node: Node) -> None:
        title = "".join(texts_of_rich(node.title))
        node.pending.append((self.clock() + timedelta(seconds=self.index_lag), title, node.edited))

    def _tell(self, node: Node, event: str, touched: list[str], *, index: bool = True) -> None:
        if index:
            self._index(node)
        if not self.accessible(node):
            return
        change = Change(event, node.kind, node.id, node.parent, touched, self.clock())
        for heard in self._watchers:
            heard(change)
