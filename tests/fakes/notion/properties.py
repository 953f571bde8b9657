"""Values of properties as the API shows them, from plain Python values, and the text that each must give."""

from __future__ import annotations

from typing import Any

from tests.fakes.notion.blocks import rich, texts_of_rich

EMPTY: dict[str, Any] = {
    "title": [],
    "rich_text": [],
    "multi_select": [],
    "people": [],
    "files": [],
    "relation": [],
    "checkbox": False,
    "button": {},
    "formula": {"type": "string", "string": None},
    "rollup": {"type": "number", "number": None, "function": "count"},
    "unique_id": {"prefix": None, "number": None},
}
"""What a property that nobody set shows; None for the types that are not here."""

PAGED = ("title", "rich_text", "people", "relation")
"""Types whose values are lists that a page shows only the first 25 of."""

SHOWN = 25


def option(name: str, color: str = "default") -> dict[str, Any]:
    """An option of a select, a multi-select or a status."""
    return {"id": f"opt-{name.lower().replace(' ', '-')}", "name": name, "color": color}


def date(start: str, end: str | None = None) -> dict[str, Any]:
    """A date, or a span of dates."""
    return {"start": start, "end": end, "time_zone": None}


def value(kind: str, simple: Any) -> Any:
    """The API's form of a value: names for options, ids for relations and people, whatever is a dict as it is."""
    match kind:
        case "title" | "rich_text" if isinstance(simple, str):
            return rich(simple)
        case "select" | "status" if isinstance(simple, str):
            return option(simple)
        case "multi_select":
            return [option(name) if isinstance(name, str) else name for name in simple]
        case "relation":
            return [{"id": target} for target in simple]
        case "date" if isinstance(simple, str):
            return date(simple)
        case "files":
            return [_file(one) for one in simple]
        case _:
            return simple


def _file(one: Any) -> Any:
    """A file from (name, address or id of a stored file)."""
    if isinstance(one, dict):
        return one
    name, source = one
    if source.startswith("http"):
        return {"name": name, "type": "external", "external": {"url": source}}
    return {"name": name, "type": "file", "file": {"$file": source}}


def texts(kind: str, said: Any) -> list[str]:
    """What a reader must get of a value; none for empty ones and for those without words."""
    match kind, said:
        case _, None:
            return []
        case (("title" | "rich_text"), _):
            return texts_of_rich(said)
        case (("number" | "url" | "email" | "phone_number"), _):
            return [str(said)]
        case (("select" | "status"), _):
            return [said["name"]]
        case "multi_select", _:
            return [one["name"] for one in said]
        case "date", _:
            return [part for part in (said["start"], said["end"]) if part]
        case "people", _:
            return [one["name"] for one in said if one.get("name")]
        case "files", _:
            return [one["name"] for one in said]
        case (("formula" | "rollup"), {"type": "array", "array": inner}):
            return [line for one in inner for line in texts(one["type"], one[one["type"]])]
        case (("formula" | "rollup"), {"type": inner}):
            return texts({"string": "url"}.get(inner, inner), said[inner])
        case "unique_id", {"prefix": prefix, "number": number} if number is not None:
            return [f"{prefix}-{number}" if prefix else str(number)]
        case "place", _:
            return [said[key] for key in ("name", "address") if said.get(key)]
        case _:
            return []
