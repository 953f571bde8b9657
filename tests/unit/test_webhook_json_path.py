"""JSON paths of webhook receivers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.receivers.json_path import MISSING, JsonPath

VALUE = {"page": {"url": "u", "a b": 1, "été": 2, "null": None}, "files": [{"name": "f"}, {"name": "g"}], "": 3, "0": 4}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$", VALUE),
        ("$.page.url", "u"),
        ("$['page']['url']", "u"),
        ('$["page"].url', "u"),
        ("$.page['a b']", 1),
        ("$.page.été", 2),
        ("$.page.null", None),
        ("$.files[0].name", "f"),
        ("$.files[-1].name", "g"),
        ("$[ 'files' ][ 1 ]", {"name": "g"}),
        ("$['']", 3),
        ("$['0']", 4),
        ("$.files[2]", MISSING),
        ("$.files[-3]", MISSING),
        ("$.files.name", MISSING),
        ("$.files['0']", MISSING),
        ("$[0]", MISSING),
        ("$.page.url.more", MISSING),
        ("$.page.url[0]", MISSING),
        ("$.nothing", MISSING),
    ],
)
def test_find(path: str, found: Any) -> None:
    assert JsonPath.parse(path).find(VALUE) is found or JsonPath.parse(path).find(VALUE) == found


@pytest.mark.parametrize(
    "path",
    [
        *["", "page", ".page", "$page", "$.", "$..url", "$.*", "$[*]", "$[]", "$[01]", "$[-0]", "$[1:2]", "$[0,1]"],
        *["$.a[?@.b]", "$['a", "$['a\\'b']", "$.a b", "$.a.", " $.a", "$.a ", "$[1e3]", "$[99999999999]", "$.0a"],
    ],
)
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(ValueError, match="is not a JSON path"):
        JsonPath.parse(path)


@given(st.text(max_size=30), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_nothing_else_is_raised(text: str, value: Any) -> None:
    try:
        path = JsonPath.parse("$" + text)
    except ValueError:
        return
    path.find(value)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="'\\")) | st.integers(0, 9), max_size=4))
def test_finds_what_was_put_there(parts: list[str | int]) -> None:
    value: Any = "here"
    for part in reversed(parts):
        value = {part: value} if isinstance(part, str) else [None] * part + [value]
    text = "$" + "".join(f"['{part}']" if isinstance(part, str) else f"[{part}]" for part in parts)
    assert JsonPath.parse(text).find(value) == "here"
