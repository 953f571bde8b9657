"""Values of properties as JSON and as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from worker.connectors.notion.nodes import render
from worker.connectors.notion.properties import property_files, property_nodes, read_properties, title_of, value_of

Json = dict[str, Any]
PAGE = "59833787-2cf9-4fdf-8782-e53db20768a5"
HEX = PAGE.replace("-", "")


def rich(text: str) -> list[Json]:
    return [{"type": "text", "text": {"content": text}, "plain_text": text}]


def nothing_more(name: str) -> Iterator[Json]:
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("title", rich(" Plan "), "Plan"),
        ("rich_text", rich("a") + rich("b"), "ab"),
        ("rich_text", [], ""),
        ("number", 0, 0),
        ("number", None, None),
        ("select", {"id": "1", "name": "High", "color": "red"}, "High"),
        ("select", None, None),
        ("status", {"id": "1", "name": "Done", "color": "green"}, "Done"),
        ("multi_select", [{"name": "a"}, {"name": "b"}], ["a", "b"]),
        ("date", {"start": "2026-01-02", "end": None, "time_zone": None}, "2026-01-02"),
        ("date", {"start": "2026-01-02", "end": "2026-01-05"}, "2026-01-02/2026-01-05"),
        ("people", [{"object": "user", "id": "1", "name": "Ada"}, {"object": "user", "id": "2"}], ["Ada"]),
        ("people", [{"id": "1", "person": {"email": "ada@example.com"}}], ["ada@example.com"]),
        ("files", [{"name": "a.pdf", "type": "file", "file": {"url": "https://h/a.pdf"}}], ["a.pdf"]),
        ("checkbox", False, False),
        ("url", "https://example.com", "https://example.com"),
        ("email", "a@example.com", "a@example.com"),
        ("phone_number", "+43 1", "+43 1"),
        ("formula", {"type": "string", "string": "x"}, "x"),
        ("formula", {"type": "number", "number": 3}, 3),
        ("formula", {"type": "boolean", "boolean": True}, True),
        ("formula", {"type": "date", "date": {"start": "2026-01-02"}}, "2026-01-02"),
        ("formula", {"type": "unsupported", "unsupported": {}}, None),
        ("relation", [{"id": PAGE}], [HEX]),
        ("rollup", {"type": "number", "number": 4, "function": "sum"}, 4),
        ("rollup", {"type": "date", "date": {"start": "2026-01-02"}, "function": "latest_date"}, "2026-01-02"),
        (
            "rollup",
            {"type": "array", "array": [{"type": "title", "title": rich("a")}, {"type": "number", "number": 1}]},
            ["a", 1],
        ),
        ("rollup", {"type": "array", "array": [{"type": "multi_select", "multi_select": [{"name": "a"}]}]}, ["a"]),
        ("rollup", {"type": "incomplete", "incomplete": {}}, None),
        ("created_time", "2026-01-02T10:00:00.000Z", "2026-01-02T10:00:00.000Z"),
        ("created_by", {"object": "user", "id": "1", "name": "Ada"}, "Ada"),
        ("created_by", {"object": "user", "id": "1"}, None),
        ("last_edited_time", "2026-01-02T10:00:00.000Z", None),
        ("last_edited_by", {"name": "Ada"}, None),
        ("unique_id", {"prefix": "BUG", "number": 12}, "BUG-12"),
        ("unique_id", {"prefix": None, "number": 12}, "12"),
        ("button", {}, None),
        ("verification", {"state": "verified", "date": None}, "verified"),
        ("verification", {"state": "unverified"}, None),
        ("place", {"lat": 1.5, "lon": 2, "name": "Office", "address": "Main St"}, "Office, Main St"),
        ("place", {"lat": 1.5, "lon": 2}, "1.5, 2"),
        ("newer_than_this", "text", "text"),
        ("newer_than_this", {"a": 1}, None),
    ],
)
def test_a_value(kind: str, value: Any, expected: Any) -> None:
    found = value_of({"id": "x", "type": kind, kind: value})
    assert found == expected
    assert type(found) is type(expected)


def page(**properties: tuple[str, Any]) -> Json:
    shown = {name: {"id": name.lower(), "type": kind, kind: value} for name, (kind, value) in properties.items()}
    return {"object": "page", "id": PAGE, "properties": shown}


def test_empty_values_are_left_out() -> None:
    row = page(
        Name=("title", rich("Row")),
        Empty=("rich_text", []),
        None_=("select", None),
        Tags=("multi_select", []),
        Count=("number", 0),
        Done=("checkbox", False),
        Link=("url", "https://example.com/a_b"),
        When=("date", {"start": "2026-01-02", "end": "2026-01-05"}),
        Friend=("relation", [{"id": PAGE}]),
        Path=("rich_text", rich("a/b_c\nd")),
        Edited=("last_edited_time", "2026-01-02T10:00:00.000Z"),
    )
    values = read_properties(row, nothing_more)
    assert list(values) == ["Name", "Count", "Done", "Link", "When", "Friend", "Path"]
    assert json.loads(json.dumps(values)) == values
    assert render(property_nodes(row, values)) == (
        "Count: 0\\\nDone: no\\\nLink: [https://example.com/a\\_b](https://example.com/a_b)\\\n"
        "When: 2026-01-02 to 2026-01-05\\\nPath: a/b\\_c\\\nd\n"
    )
    assert property_nodes(page(Name=("title", rich("x"))), {"Name": "x"}) == []


def test_long_values_are_fetched() -> None:
    asked = []

    def more(name: str) -> Iterator[Json]:
        asked.append(name)
        kind = {"friends": "relation", "who": "people", "notes": "rich_text", "all": "number"}[name]
        one: dict[str, Any] = {
            "relation": {"id": PAGE},
            "people": {"name": "Ada"},
            "rich_text": rich("x")[0],
            "number": 1,
        }
        return ({"object": "property_item", "type": kind, kind: one[kind]} for _ in range(60))

    row = page(
        Friends=("relation", [{"id": PAGE}]),
        Few=("relation", [{"id": PAGE}] * 2),
        Who=("people", [{"name": "Ada"}] * 25),
        Notes=("rich_text", rich("x") * 25),
        All=("rollup", {"type": "array", "array": [{"type": "number", "number": 1}] * 25}),
    )
    row["properties"]["Friends"]["has_more"] = True
    values = read_properties(row, more)
    assert sorted(asked) == ["all", "friends", "notes", "who"]
    assert {name: len(value) for name, value in values.items()} == {
        "Friends": 60,
        "Few": 2,
        "Who": 60,
        "Notes": 60,
        "All": 60,
    }
    assert len(read_properties(row, lambda name: ())["Who"]) == 25  # those of the page are better than none


def test_titles_and_files() -> None:
    assert title_of(page(Name=("title", rich("Plan\n")))) == "Plan"
    assert (
        title_of({"object": "data_source", "title": rich("Tasks"), "properties": {"Name": {"type": "title"}}})
        == "Tasks"
    )
    assert title_of({"object": "page", "id": PAGE}) == ""
    row = page(
        Papers=(
            "files",
            [
                {"name": "a.pdf", "type": "file", "file": {"url": "https://h/s/a.pdf?X-Amz-Signature=1"}},
                {"name": "b", "type": "external", "external": {"url": "https://example.com/b"}},
            ],
        )
    )
    assert [(one.name, one.hosted, one.place) for one in property_files(row)] == [
        ("a.pdf", True, "Papers"),
        ("b", False, "Papers"),
    ]
