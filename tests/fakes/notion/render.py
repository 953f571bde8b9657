"""Objects of a world as the API shows them in one of its versions."""

from __future__ import annotations

import hashlib
import hmac
import itertools
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from tests.fakes.notion import properties as values
from tests.fakes.notion.blocks import Block, texts_of_rich
from tests.fakes.notion.nodes import Node, Parent, StoredFile
from tests.fakes.notion.world import World

OLD, NEW = "2025-09-03", "2026-03-11"
VERSIONS = (OLD, NEW)

FILE_LIFE = 3600
"""Seconds that the address of a stored file is good for."""

_nonces = itertools.count(1)
_Object = dict[str, Any]


def shown_time(moment: datetime) -> str:
    """A time as the API shows it: down to the minute."""
    return moment.strftime("%Y-%m-%dT%H:%M:00.000Z")


def exact_time(moment: datetime) -> str:
    """A time with its milliseconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def page_url(id_: str) -> str:
    """Where people see a page or a database."""
    return f"https://app.notion.com/p/{id_.replace('-', '')}"


def _user(id_: str) -> _Object:
    return {"object": "user", "id": id_}


def _parent(world: World, parent: Parent) -> _Object:
    if parent.kind == "workspace":
        return {"type": "workspace", "workspace": True}
    key = f"{parent.kind}_id"
    said = {"type": key, key: parent.id}
    if parent.kind == "data_source":
        said["database_id"] = world.nodes[parent.id].parent.id
    return said


class Renderer:
    """Makes the API's objects.

    Args:
        host: where the server listens; addresses of files begin with it.
        secret: signs them.
    """

    def __init__(self, world: World, host: str, version: str, secret: bytes) -> None:
        self.world = world
        self.host = host
        self.version = version
        self.secret = secret

    def _aged(self, said: _Object) -> _Object:
        """Add what older versions call by another name."""
        if self.version == OLD:
            said["archived"] = said["in_trash"]
        return said

    # Files

    def signed(self, id_: str) -> _Object:
        """A fresh address of a stored file, and when it expires."""
        stored, now = self.world.files[id_], self.world.clock()
        expires = now + timedelta(seconds=FILE_LIFE)
        until, nonce = f"{expires.timestamp():.3f}", str(next(_nonces))
        query = {"X-Amz-Expires": str(FILE_LIFE), "X-Amz-Date": now.strftime("%Y%m%dT%H%M%SZ")}
        query |= {"nonce": nonce, "until": until, "X-Amz-Signature": self._signature(id_, until, nonce)}
        where = f"{self.host}/files/{id_}/{quote(stored.name)}?{urlencode(query)}"
        return {"url": where, "expiry_time": exact_time(expires)}

    def opened(self, id_: str, query: str) -> StoredFile | None:
        """The file of an address, None where it is wrong or has expired."""
        asked = {key: found[0] for key, found in parse_qs(query).items()}
        until, nonce = asked.get("until", "0"), asked.get("nonce", "")
        right = hmac.compare_digest(self._signature(id_, until, nonce), asked.get("X-Amz-Signature", ""))
        fresh = right and self.world.clock().timestamp() < float(until)
        return self.world.files.get(id_) if fresh else None

    def _signature(self, id_: str, until: str, nonce: str) -> str:
        return hmac.new(self.secret, f"{id_} {until} {nonce}".encode(), hashlib.sha256).hexdigest()

    def _resolved(self, said: Any) -> Any:
        """The same with an address for each stored file."""
        if isinstance(said, dict):
            if "$file" in said:
                return self.signed(said["$file"])
            return {key: self._resolved(value) for key, value in said.items()}
        return [self._resolved(one) for one in said] if isinstance(said, list) else said

    # Blocks

    def block(self, one: Block) -> _Object:
        """A block object."""
        node = self.world.nodes.get(one.id)
        kind = "transcription" if one.type == "meeting_notes" and self.version == OLD else one.type
        if node is not None:
            payload: Any = {"title": "".join(texts_of_rich(node.title))}
            parent, edited, below = _parent(self.world, node.parent), node.edited, bool(node.blocks)
        else:
            payload = self._resolved(one.payload)
            parent = _parent(self.world, Parent("page" if one.parent in self.world.nodes else "block", one.parent))
            edited = one.edited or self.world.clock()
            below = bool(one.children) or (one.type == "synced_block" and one.payload["synced_from"] is not None)
        if one.type == "meeting_notes":
            names = ("summary_block_id", "notes_block_id", "transcript_block_id")
            payload = {**payload, "children": dict(zip(names, (section.id for section in one.children), strict=True))}
        user = _user(self.world.user_id)
        said = {
            "object": "block",
            "id": one.id,
            "parent": parent,
            "created_time": shown_time(one.created or edited),
            "last_edited_time": shown_time(edited),
            "created_by": user,
            "last_edited_by": user,
            "has_children": below,
            "in_trash": self.world.in_trash(self.world.nodes.get(one.page)),
            "type": kind,
            kind: payload,
        }
        return self._aged(said)

    # Pages, data sources, databases

    def page(self, page: Node, only: Collection[str] = ()) -> _Object:
        """A page object; `only`: ids of the properties to show, all when empty."""
        shown: _Object = {}
        for name, id_, kind in self._columns(page):
            if only and id_ not in only:
                continue
            found = self.value(page, name, kind)
            more = {"has_more": len(found) > values.SHOWN} if kind == "relation" else {}
            shown[name] = {"id": id_, "type": kind, kind: _first(kind, found), **more}
        user = _user(self.world.user_id)
        said = {
            "object": "page",
            "id": page.id,
            "created_time": shown_time(page.created),
            "last_edited_time": shown_time(page.edited),
            "created_by": user,
            "last_edited_by": user,
            "cover": self._resolved(page.cover),
            "icon": self._resolved(page.icon),
            "parent": _parent(self.world, page.parent),
            "in_trash": self.world.in_trash(page),
            "is_archived": False,
            "is_locked": page.locked,
            "properties": shown,
            "url": page_url(page.id),
            "public_url": None,
        }
        return self._aged(said)

    def _columns(self, page: Node) -> list[tuple[str, str, str]]:
        """Name, id and type of each property."""
        source = self.world.nodes.get(page.parent.id)
        if source is not None and source.kind == "data_source":
            return [(name, column["id"], column["type"]) for name, column in source.schema.items()]
        return [("title", "title", "title")]

    def value(self, page: Node, name: str, kind: str) -> Any:
        """All of a property's value."""
        user = _user(self.world.user_id)
        match kind:
            case "title":
                return page.title
            case "created_time":
                return shown_time(page.created)
            case "last_edited_time":
                return shown_time(page.edited)
            case "created_by" | "last_edited_by":
                return user
        found = page.properties.get(name, (kind, values.EMPTY.get(kind)))[1]
        return self._resolved(found)

    def property_of(self, page: Node, id_: str, decode: Callable[[str], str]) -> tuple[str, str, Any] | None:
        """Id, type and whole value of a property; its id may come decoded."""
        for name, known, kind in self._columns(page):
            if decode(known) == decode(id_):
                return known, kind, self.value(page, name, kind)
        return None

    def data_source(self, source: Node) -> _Object:
        """A data source object."""
        database = self.world.nodes[source.parent.id]
        columns = {name: {**column, column["type"]: {}} for name, column in source.schema.items()}
        said = self._titled(source, "data_source", database)
        said |= {"database_parent": _parent(self.world, database.parent), "properties": columns}
        return self._aged(said)

    def database(self, database: Node) -> _Object:
        """A database object: a container of data sources."""
        sources = [self.world.nodes[id_] for id_ in database.sources]
        said = self._titled(database, "database", database)
        named = [{"id": source.id, "name": "".join(texts_of_rich(source.title))} for source in sources]
        del said["created_by"], said["last_edited_by"]  # of a database nobody tells
        return self._aged(said | {"is_locked": database.locked, "data_sources": named})

    def _titled(self, node: Node, kind: str, database: Node) -> _Object:
        user = _user(self.world.user_id)
        return {
            "object": kind,
            "id": node.id,
            "title": node.title,
            "description": node.description,
            "parent": _parent(self.world, node.parent),
            "is_inline": database.inline,
            "in_trash": self.world.in_trash(node),
            "created_time": shown_time(node.created),
            "last_edited_time": shown_time(node.edited),
            "created_by": user,
            "last_edited_by": user,
            "icon": self._resolved(node.icon),
            "cover": self._resolved(node.cover),
            "url": page_url(database.id),
            "public_url": None,
        }

    def person(self) -> _Object:
        """The only person there is, who made everything."""
        said = {"object": "user", "id": self.world.user_id, "name": "Grace Hopper", "avatar_url": None}
        return {**said, "type": "person", "person": {"email": "grace@example.com"}}

    def bot(self) -> _Object:
        """The connection itself, as a user."""
        limits = {"max_file_upload_size_in_bytes": 5_242_880}
        bot = {"owner": {"type": "workspace", "workspace": True}, "workspace_name": "Fake workspace"}
        bot |= {"workspace_id": self.world.workspace_id, "workspace_limits": limits}
        said = {"object": "user", "id": self.world.bot_id, "name": "Fake connection", "avatar_url": None}
        return {**said, "type": "bot", "bot": bot}


def _first(kind: str, found: Any) -> Any:
    """What a page shows of a value: 25 people or relations, and text up to its 25th mention."""
    if kind in ("people", "relation"):
        return found[: values.SHOWN]
    if kind in ("title", "rich_text"):
        mentions = [at for at, part in enumerate(found) if part["type"] == "mention"]
        return found[: mentions[values.SHOWN]] if len(mentions) > values.SHOWN else found
    return found
