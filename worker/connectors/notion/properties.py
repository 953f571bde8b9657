"""Values of a page's properties as plain JSON, and as lines of text.

Written against `reference/page-property-values` and the types of the official JavaScript client (5.26, August 2026)
for API 2026-03-11. A page object has at most 25 values of a title, text, relation or list of people; the rest is
asked for (`reference/retrieve-a-page-property`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from worker.connectors.notion.content import Media
from worker.connectors.notion.ids import plain_id
from worker.connectors.notion.nodes import BREAK, Node, escape, link
from worker.connectors.notion.rich_text import plain

MOST_IN_PAGE = 25

_LONG = ("title", "rich_text", "relation", "people")
_SCALARS = ("number", "checkbox", "url", "email", "phone_number", "created_time", "string", "boolean")
_LEFT_OUT = ("last_edited_time", "last_edited_by", "button")
"""New at each edit, whoever made it, so that a page would be indexed again for nothing; and what has no value."""

More = Callable[[str], Iterable[Mapping[str, Any]]]
"""All values of a property of that id, from the endpoint for one property."""


def title_of(page: Mapping[str, Any]) -> str:
    """The title of a page, of a data source or of a database; empty where it has none."""
    title = page.get("title")
    if isinstance(title, list):
        return plain(title).strip()
    for own in (page.get("properties") or {}).values():
        if isinstance(own, Mapping) and own.get("type") == "title":
            return plain(own.get("title")).strip()
    return ""


def read_properties(page: Mapping[str, Any], more: More) -> dict[str, Any]:
    """Values by property name, the title too; empty ones are left out."""
    values = {}
    for name, own in (page.get("properties") or {}).items():
        if isinstance(own, Mapping) and own.get("type") not in _LEFT_OUT:
            value = value_of(_whole(own, more))
            if value not in (None, "", [], {}):
                values[str(name)] = value
    return values


def property_files(page: Mapping[str, Any]) -> Iterator[Media]:
    """Files that are values of properties."""
    for name, own in (page.get("properties") or {}).items():
        if isinstance(own, Mapping) and own.get("type") == "files":
            for file in own.get("files") or ():
                kind = str(file.get("type") or "")
                url = str((file.get(kind) or {}).get("url") or "")
                shown = str(file.get("name") or "")
                yield Media("file", url, name=shown, hosted=kind == "file", place=str(name))


def property_nodes(page: Mapping[str, Any], values: Mapping[str, Any]) -> list[Node]:
    """`Name: value` lines as one paragraph; without the title, and without relations, which are only ids."""
    kinds = {str(name): own.get("type") for name, own in (page.get("properties") or {}).items()}
    lines = [
        f"{escape(name)}: {_shown(value)}"
        for name, value in values.items()
        if kinds.get(name) not in ("title", "relation") and _shown(value)
    ]
    return [Node("paragraph", BREAK.join(lines))] if lines else []


def value_of(own: Mapping[str, Any]) -> Any:
    """One value as plain JSON: text, a number, a truth, or a list of these; None where it is empty.

    A date with an end is `start/end` (ISO 8601), a relation a list of page ids.
    """
    kind = str(own.get("type") or "")
    value = own.get(kind)
    if kind in _LEFT_OUT or value is None:
        return None
    if kind in _SCALARS:
        return value
    if kind in ("title", "rich_text"):
        return plain(value if isinstance(value, list) else [value]).strip()
    if kind in ("select", "status"):
        return value.get("name")
    if kind == "date":
        return "/".join(filter(None, (value.get("start"), value.get("end"))))
    if kind == "created_by":
        return _person(value)
    if kind == "unique_id":
        number = value.get("number")
        return None if number is None else "-".join(filter(None, (value.get("prefix"), str(number))))
    if kind == "verification":
        return value.get("state") if value.get("state") != "unverified" else None
    if kind == "place":
        place = ", ".join(filter(None, (value.get("name"), value.get("address"))))
        return place or ", ".join(str(value[name]) for name in ("lat", "lon") if value.get(name) is not None)
    return _compound(kind, value)


def _compound(kind: str, value: Any) -> Any:
    if kind == "multi_select":
        return [one.get("name") for one in value]
    if kind == "people":
        return list(filter(None, map(_person, value if isinstance(value, list) else [value])))
    if kind == "files":
        return list(filter(None, (one.get("name") for one in value)))
    if kind == "relation":
        found = (plain_id(str(one.get("id") or "")) for one in (value if isinstance(value, list) else [value]))
        return list(filter(None, found))
    if kind == "formula":
        return value_of(value)
    if kind == "rollup":
        return value_of(value) if value.get("type") != "array" else _flat(map(value_of, value.get("array") or ()))
    return value if isinstance(value, (str, int, float, bool)) else None


def _whole(own: Mapping[str, Any], more: More) -> Mapping[str, Any]:
    """A property with all its values, fetched where the page object has only the first of them."""
    kind = str(own.get("type"))
    value = own.get(kind)
    identifier = str(own.get("id") or "")
    if kind == "rollup" and isinstance(value, Mapping) and value.get("type") == "array":
        if len(value.get("array") or ()) < MOST_IN_PAGE or not identifier:
            return own
        return {"type": "rollup", "rollup": {"type": "array", "array": list(more(identifier)) or value["array"]}}
    if kind not in _LONG or not isinstance(value, list) or not identifier:
        return own
    if not own.get("has_more") and len(value) < MOST_IN_PAGE:
        return own
    items = [item.get(kind) for item in more(identifier) if item.get("type") == kind]
    return {"type": kind, kind: _flat(items) or value}


def _flat(values: Iterable[Any]) -> list[Any]:
    flat: list[Any] = []
    for value in values:
        flat += value if isinstance(value, list) else [value] if value not in (None, "") else []
    return flat


def _person(person: Mapping[str, Any]) -> str | None:
    return person.get("name") or (person.get("person") or {}).get("email")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and value.startswith(("http://", "https://")) and " " not in value:
        return link(escape(value), value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(filter(None, map(_shown, value)))
    if isinstance(value, str):
        return escape(value.strip().replace("/", " to ", 1) if _span(value) else value.strip())
    return str(value)


def _span(value: str) -> bool:
    start, _, end = value.partition("/")
    return all(len(part) >= 10 and part[:4].isdigit() and part[4] == "-" for part in (start, end))
