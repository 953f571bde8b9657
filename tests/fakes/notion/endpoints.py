"""What each endpoint of the API answers for a world."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from tests.fakes.notion import properties as values
from tests.fakes.notion.faults import Fault
from tests.fakes.notion.filters import Rejected, passes
from tests.fakes.notion.markdown import page_markdown
from tests.fakes.notion.nodes import Node
from tests.fakes.notion.render import Renderer
from tests.fakes.notion.world import World

MOST = 100
"""Objects on one page of a list."""

_CURSORS = 20_000
_NAMES = {"page": "page", "data_source": "data source", "database": "database", "block": "block", "user": "user"}

_Query = Mapping[str, list[str]]
_Rows = list[tuple[Any, Any]]
_Object = dict[str, Any]


class RefusedError(Exception):
    """The API refuses a request."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def _invalid(message: str) -> RefusedError:
    return RefusedError(400, "validation_error", message)


def _missing(kind: str, id_: str) -> RefusedError:
    said = f"Could not find {_NAMES[kind]} with ID: {id_}. Make sure the relevant pages and databases are shared"
    return RefusedError(404, "object_not_found", f'{said} with your connection "Fake connection".')


def _id(given: str, name: str) -> str:
    try:
        return str(uuid.UUID(given))
    except ValueError:
        said = f'path failed validation: path.{name} should be a valid uuid, instead was `"{given}"`.'
        raise _invalid(said) from None


class Endpoints:
    """Answers requests; the caller holds the world's lock."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._cursors: OrderedDict[str, tuple[str, Any, int]] = OrderedDict()

    def answer(
        self,
        endpoint: str,
        parts: tuple[str, ...],
        query: _Query,
        body: Any,
        renderer: Renderer,
        fault: Fault | None,
    ) -> _Object:
        """The body of an answer with status 200.

        Raises:
            RefusedError: for every other.
        """
        kind = fault.kind if fault else ""
        match endpoint:
            case "search":
                return self._search(body, renderer, kind)
            case "data_sources.query":
                return self._query(parts[0], query, body, renderer, kind)
            case "data_sources":
                return renderer.data_source(self._node(parts[0], "data_source"))
            case "databases":
                return renderer.database(self._node(parts[0], "database"))
            case "pages":
                return renderer.page(self._node(parts[0], "page"), query.get("filter_properties", ()))
            case "pages.properties":
                return self._property(parts, query, renderer, kind)
            case "pages.markdown":
                id_ = _id(parts[0], "page_id")
                if self.world.block(id_) is None:
                    raise _missing("page", id_)
                transcript = query.get("include_transcript") == ["true"]
                return page_markdown(renderer, id_, transcript=transcript)
            case "blocks":
                return renderer.block(self._block(parts[0]))
            case "blocks.children":
                return self._children(parts[0], query, renderer, kind)
            case "users":
                id_ = _id(parts[0], "user_id")
                if id_ not in (self.world.user_id, self.world.bot_id):
                    raise _missing("user", id_)
                return renderer.person() if id_ == self.world.user_id else renderer.bot()
            case _:
                return renderer.bot()

    def _node(self, given: str, kind: str) -> Node:
        id_ = _id(given, f"{kind}_id")
        found = self.world.node(id_, kind)
        if found is None:
            raise _missing(kind, id_)
        return found

    def _block(self, given: str) -> Any:
        id_ = _id(given, "block_id")
        found = self.world.block(id_)
        if found is None:
            raise _missing("block", id_)
        if found.refuses:
            raise _invalid(f"Block type {found.refuses} is not supported via the API.")
        return found

    def _children(self, given: str, query: _Query, renderer: Renderer, kind: str) -> _Object:
        one = self._block(given)
        below = self.world.children(one)
        if below is None:
            raise _missing("block", one.payload["synced_from"]["block_id"])
        rows: _Rows = list(enumerate(below))
        return self._list("block", one.id, rows, _asked(query), renderer.block, kind)

    def _search(self, body: _Object, renderer: Renderer, kind: str) -> _Object:
        rule, sort = body.get("filter") or {}, body.get("sort") or {}
        if "value" in rule and rule["value"] not in ("page", "data_source"):
            said = 'body.filter.value should be `"page"` or `"data_source"`'
            raise _invalid(f'body failed validation: {said}, instead was `"{rule["value"]}"`.')
        trashed, wanted = rule.get("in_trash", False), body.get("query", "").lower()
        falling = sort.get("direction", "descending") == "descending"
        rows: _Rows = []
        for node in self.world.nodes.values():
            if node.kind not in ("page", "data_source") or node.id in self.world.unsearchable:
                continue
            known = self.world.search_state(node)
            if known is None or rule.get("value", node.kind) != node.kind or wanted not in known[0].lower():
                continue
            if self.world.accessible(node) and self.world.in_trash(node) == trashed:
                rows.append((_key(known[1], node.id, falling), node))
        shown = _either(renderer)
        return self._list("page_or_data_source", f"search {rule} {sort} {wanted}", rows, body, shown, kind)

    def _query(self, given: str, query: _Query, body: _Object, renderer: Renderer, kind: str) -> _Object:
        source = self._node(given, "data_source")
        rule, trashed = body.get("filter"), body.get("in_trash", body.get("archived", False))
        sorts = body.get("sorts") or [{"timestamp": "created_time", "direction": "descending"}]
        stamp, falling = sorts[0].get("timestamp"), sorts[0].get("direction") == "descending"
        if stamp not in ("created_time", "last_edited_time"):
            raise _invalid("body failed validation: the fake sorts by timestamps only.")
        rows: _Rows = []
        for node in self.world.nodes.values():
            if node.kind == "page" and node.parent.id == source.id and self.world.accessible(node):
                try:
                    chosen = self.world.in_trash(node) == trashed and passes(rule, node)
                except Rejected as error:
                    raise _invalid(f"body failed validation: {error}") from None
                if chosen:
                    moment = node.created if stamp == "created_time" else node.edited
                    rows.append((_key(moment, node.id, falling), node))
        only = query.get("filter_properties", query.get("filter_properties[]", ()))
        return self._list(
            "page_or_data_source",
            f"{source.id} {rule} {sorts}",
            rows,
            body,
            lambda node: renderer.page(node, only),
            kind,
            most=self.world.query_limit,
        )

    def _property(self, parts: tuple[str, ...], query: _Query, renderer: Renderer, fault: str) -> _Object:
        page = self._node(parts[0], "page")
        found = renderer.property_of(page, parts[1], unquote)
        if found is None:
            raise RefusedError(404, "object_not_found", f"Could not find property with ID: {parts[1]}.")
        id_, kind, value = found
        if kind == "rollup" and value["type"] == "array":
            inner: list[tuple[str, Any]] = [(one["type"], one[one["type"]]) for one in value["array"]]
            head: _Object = {kind: {**value, "array": []}}
        elif kind in values.PAGED:
            inner, head = [(kind, one) for one in value], {kind: {}}
        else:
            return {"object": "property_item", "id": id_, "type": kind, kind: value}
        said = self._list(
            "property_item",
            f"{page.id} {id_}",
            list(enumerate(inner)),
            _asked(query),
            lambda one: {"object": "property_item", "id": id_, "type": one[0], one[0]: one[1]},
            fault,
        )
        next_url = None
        if said["next_cursor"]:
            next_url = f"{renderer.host}/v1/pages/{page.id}/properties/{id_}?start_cursor={said['next_cursor']}"
        said["property_item"] = {"id": id_, "next_url": next_url, "type": kind, **head}
        return said

    def _list(
        self,
        of: str,
        scope: str,
        rows: _Rows,
        asked: _Object,
        shown: Callable[[Any], _Object],
        fault: str,
        *,
        most: int | None = None,
    ) -> _Object:
        """One page of a list. `rows`: sort key and thing; `most`: over all pages, the rest is never given."""
        size, cursor = asked.get("page_size") or MOST, asked.get("start_cursor")
        if not isinstance(size, int) or not 1 <= size <= MOST:
            raise _invalid(f"body failed validation: body.page_size should be ≤ `{MOST}`, instead was `{size}`.")
        rows = sorted(rows, key=lambda row: row[0])
        kept = rows if most is None else rows[:most]
        start = self._start(scope, kept, cursor) if cursor is not None else 0
        part = kept[start : start + size]
        end = start + len(part)
        more = end < len(kept)
        next_cursor = self._cursor(scope, part[-1][0], end) if more else None
        said: _Object = {"object": "list", "results": [shown(row[1]) for row in part]}
        if fault == "repeat_cursor":
            more, next_cursor = True, cursor or self._cursor(scope, None, 0)
        if fault == "incomplete" or (not more and len(kept) < len(rows)):
            more, next_cursor = False, None
            said["request_status"] = {"type": "incomplete", "incomplete_reason": "query_result_limit_reached"}
        return said | {"next_cursor": next_cursor, "has_more": more, "type": of, of: {}}

    def _cursor(self, scope: str, last: Any, offset: int) -> str:
        made = str(uuid.uuid4())
        self._cursors[made] = (scope, last, offset)
        if len(self._cursors) > _CURSORS:
            self._cursors.popitem(last=False)
        return made

    def _start(self, scope: str, rows: _Rows, cursor: str) -> int:
        known, last, offset = self._cursors.get(str(cursor), ("", None, 0))
        if known != scope:
            raise _invalid(f"The start_cursor provided is invalid: {cursor}")
        if self.world.paging == "offset" or last is None:
            return offset
        return bisect_right([row[0] for row in rows], last)


def _key(moment: datetime, id_: str, falling: bool) -> tuple[float, str]:
    return (-moment.timestamp() if falling else moment.timestamp(), id_)


def _asked(query: _Query) -> _Object:
    """Paging as it is asked for in an address."""
    asked: _Object = {key: found[0] for key, found in query.items() if key in ("page_size", "start_cursor")}
    if "page_size" in asked:
        size = asked["page_size"]
        asked["page_size"] = int(size) if size.isdigit() else size
    return asked


def _either(renderer: Renderer) -> Callable[[Node], _Object]:
    return lambda node: renderer.page(node) if node.kind == "page" else renderer.data_source(node)
