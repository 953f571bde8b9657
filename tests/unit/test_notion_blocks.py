"""Blocks as plain Markdown, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from worker.connectors.notion.api import HiddenError, NotionApi, RefusedError
from worker.connectors.notion.blocks import DEEPEST, read_block, read_blocks
from worker.connectors.notion.nodes import render
from worker.connectors.notion.rich_text import markdown, plain

Json = dict[str, Any]


def _hex(name: str) -> str:
    return name.encode().hex().rjust(32, "0")


class Blocks:
    """Stands in for the API: blocks by the id of what they are below."""

    def __init__(self, **below: list[Json]) -> None:
        self.below = {_hex(name): blocks for name, blocks in below.items()}
        self.asked: list[str] = []

    def children(self, parent: str) -> Iterator[Json]:
        self.asked.append(parent)
        if parent not in self.below:
            raise HiddenError("notion_hidden", "not shared")
        for block in self.below[parent]:
            if block["type"] == "ai_block":
                raise RefusedError("notion_refused", "Block type ai_block is not supported via the API")
            yield block

    def block(self, block: str) -> Json:
        return next(one for blocks in self.below.values() for one in blocks if one["id"] == block)


def text(content: str, *, href: str | None = None, **annotations: bool) -> Json:
    return {
        "type": "text",
        "text": {"content": content},
        "plain_text": content,
        "href": href,
        "annotations": annotations,
    }


def mention(kind: str, about: Json, shown: str, href: str | None = None) -> Json:
    return {"type": "mention", "mention": {"type": kind, kind: about}, "plain_text": shown, "href": href}


def block(kind: str, said: str | None = None, *, below: str = "", id_: str = "", **own: Any) -> Json:
    if said is not None:
        own["rich_text"] = [text(said)]
    return {"object": "block", "id": _hex(below or id_ or kind), "type": kind, "has_children": bool(below), kind: own}


def read(**below: list[Json]) -> tuple[str, list[str]]:
    content = read_blocks(cast(NotionApi, Blocks(**below)), _hex("page"))
    return render(content.nodes).rstrip("\n"), content.unread


@pytest.mark.parametrize(
    ("kind", "own", "expected"),
    [
        ("paragraph", {"rich_text": [text("a_b")]}, "a\\_b"),
        ("heading_1", {"rich_text": [text("One")], "is_toggleable": False}, "# One"),
        ("heading_4", {"rich_text": [text("Four")]}, "#### Four"),
        ("bulleted_list_item", {"rich_text": [text("a\nb")]}, "- a\\\n  b"),
        ("numbered_list_item", {"rich_text": [text("a")]}, "1. a"),
        ("to_do", {"rich_text": [text("a")], "checked": True}, "- [x] a"),
        ("quote", {"rich_text": [text("a")]}, "> a"),
        ("callout", {"rich_text": [text("a")], "icon": {"type": "emoji", "emoji": "💡"}}, "a"),
        ("toggle", {"rich_text": [text("a")]}, "a"),
        ("template", {"rich_text": [text("a")]}, "a"),
        (
            "code",
            {"rich_text": [text("a = `b`")], "language": "plain text", "caption": [text("c")]},
            "```plain\na = `b`\n```\n\nc",
        ),
        ("equation", {"expression": "a_1"}, "```latex\na_1\n```"),
        ("divider", {}, "---"),
        ("breadcrumb", {}, ""),
        ("table_of_contents", {"color": "default"}, ""),
        (
            "bookmark",
            {"url": "https://example.com/a", "caption": [text("A")]},
            "A: [https://example.com/a](https://example.com/a)",
        ),
        ("embed", {"url": "https://example.com/a", "caption": []}, "[https://example.com/a](https://example.com/a)"),
        ("link_preview", {"url": "https://example.com/a"}, "[https://example.com/a](https://example.com/a)"),
        ("link_to_page", {"type": "page_id", "page_id": _hex("x")}, f"[page](https://www.notion.so/{_hex('x')})"),
        ("link_to_page", {"type": "comment_id", "comment_id": _hex("x")}, ""),
        (
            "image",
            {"type": "external", "external": {"url": "https://example.com/a.png"}, "caption": [text("A")]},
            "[A](https://example.com/a.png)",
        ),
        (
            "file",
            {
                "type": "file",
                "file": {"url": "https://h/s/f/a%20b.pdf?X-Amz-Signature=1"},
                "caption": [],
                "name": "a b.pdf",
            },
            "a b.pdf",
        ),
        (
            "pdf",
            {"type": "file", "file": {"url": "https://h/s/f/a.pdf?X-Amz-Signature=1"}, "caption": [text("A")]},
            "a.pdf: A",
        ),
        (
            "audio",
            {"type": "external", "external": {"url": "https://example.com/a.mp3"}, "caption": []},
            "[a.mp3](https://example.com/a.mp3)",
        ),
        ("child_page", {"title": "Sub_page"}, f"[Sub\\_page](https://www.notion.so/{_hex('child_page')})"),
        ("child_database", {"title": ""}, f"[database](https://www.notion.so/{_hex('child_database')})"),
        ("newer_than_this", {"rich_text": [text("a")]}, "a"),
    ],
)
def test_a_block(kind: str, own: Json, expected: str) -> None:
    assert read(page=[block(kind, **own)]) == (expected, [])


def test_nesting_tables_columns_tabs_and_meetings() -> None:
    rows = [
        block("table_row", cells=[[text("A")], [text("B|C")]]),
        block("table_row", cells=[[text("1", bold=True)], []]),
    ]
    shown, unread = read(
        page=[
            block("bulleted_list_item", "a", below="a"),
            block("column_list", below="columns"),
            block("table", below="table"),
            block("tab", below="tab"),
            block(
                "meeting_notes",
                title=[text("Weekly")],
                children={"summary_block_id": _hex("sum"), "notes_block_id": _hex("gone")},
            ),
            block("heading_2", "Toggle", below="toggle", is_toggleable=True),
        ],
        a=[block("numbered_list_item", "b", below="b"), block("to_do", "c")],
        b=[block("paragraph", "deep")],
        columns=[block("column", below="left"), block("column", below="right")],
        left=[block("paragraph", "Left")],
        right=[block("paragraph", "Right")],
        table=rows,
        tab=[block("paragraph", "First tab", below="first")],
        first=[block("paragraph", "In the tab")],
        sum=[block("paragraph", "Summary")],
        toggle=[block("paragraph", "In the toggle")],
    )
    assert shown == (
        "- a\n  1. b\n\n     deep\n\n  - [ ] c\n\nLeft\n\nRight\n\n| A | B\\|C |\n| --- | --- |\n| **1** |  |\n\n"
        "First tab\n\nIn the tab\n\nWeekly\n\nSummary\n\n## Toggle\n\nIn the toggle"
    )
    assert unread == ["a part of a meeting's notes that is not shared with the connection"]


def test_synced_blocks_show_their_original() -> None:
    def copy(of: str) -> Json:
        return block("synced_block", below="copy", synced_from={"type": "block_id", "block_id": _hex(of)})

    shown, unread = read(
        page=[block("synced_block", below="original", synced_from=None)], original=[block("paragraph", "Same")]
    )
    assert (shown, unread) == ("Same", [])
    assert read(page=[copy("original")], original=[block("paragraph", "Same")]) == ("Same", [])
    shown, unread = read(page=[copy("secret"), block("paragraph", "After")])
    assert (shown, unread) == ("After", ["the original of a synced block that is not shared with the connection"])
    assert read(page=[copy("page")]) == ("", [])  # a ring ends


def test_a_block_that_is_not_given_costs_no_other() -> None:
    shown, unread = read(
        page=[block("paragraph", "a"), block("unsupported", block_type="form"), block("toggle", "b", below="lost")]
    )
    assert shown == "a\n\nb"
    assert unread == [
        "a block of the type form, which the API does not give",
        "a part of the page that is not shared with the connection",
    ]
    shown, unread = read(page=[block("paragraph", "a"), block("ai_block")])
    assert (shown, unread) == (
        "a",
        ["blocks that the API does not give: Block type ai_block is not supported via the API"],
    )


def test_a_page_that_is_hidden_is_not_an_empty_one() -> None:
    with pytest.raises(HiddenError):
        read(other=[])


def test_pages_below_are_named_but_not_read() -> None:
    api = Blocks(
        page=[block("child_page", below="sub", title="Sub"), block("child_database", id_="base", title="Base")]
    )
    content = read_blocks(cast(NotionApi, api), _hex("page"))
    assert (content.pages, content.databases, api.asked) == ([_hex("sub")], [_hex("base")], [_hex("page")])


def test_depth_has_an_end() -> None:
    below = {f"n{at}": [block("paragraph", f"at {at}", below=f"n{at + 1}")] for at in range(DEEPEST + 5)}
    shown, unread = read(page=[block("paragraph", "top", below="n0")], **below)
    assert shown.count("at ") == DEEPEST - 1
    assert unread == [f"blocks nested deeper than {DEEPEST} levels"]


def test_one_block_with_what_is_below() -> None:
    api = Blocks(page=[block("toggle", "a", below="a")], a=[block("paragraph", "b")])
    assert render(read_block(cast(NotionApi, api), _hex("a")).nodes) == "a\n\nb\n"


@pytest.mark.parametrize(
    ("rich", "expected"),
    [
        ([text("a "), text("bold", bold=True), text(" b")], "a **bold** b"),
        ([text("a "), text(" bold ", bold=True), text("b")], "a  **bold** b"),
        ([text("in"), text("side", italic=True)], "inside"),
        ([text("注意。", bold=True), text("です")], "注意。です"),
        ([text("x", bold=True, italic=True, strikethrough=True)], "~~***x***~~"),
        ([text("a`b", code=True)], "``a`b``"),
        ([text("site", href="https://example.com/a_(b)")], "[site](<https://example.com/a_(b)>)"),
        ([text("inner", href=f"/{_hex('x')}")], f"[inner](https://www.notion.so/{_hex('x')})"),
        ([{"type": "equation", "equation": {"expression": "x_1"}, "plain_text": "x_1"}], "$`x_1`$"),
        ([mention("user", {"id": "1"}, "@Ada")], "@Ada"),
        ([mention("user", {"id": "1"}, "Ada")], "@Ada"),
        (
            [mention("page", {"id": _hex("x")}, "Plan", "https://app.notion.com/p/x")],
            f"[Plan](https://www.notion.so/{_hex('x')})",
        ),
        ([mention("date", {"start": "2026-01-02"}, "2026-01-02")], "2026-01-02"),
        ([mention("link_mention", {"href": "https://example.com"}, "Site")], "[Site](https://example.com)"),
        ([mention("template_mention", {}, "@Today")], "@Today"),
        ([text("\n\na\n- b\n1. c\n")], "a\\\n\\- b\\\n1\\. c"),
        ([text("5 * 3 < 20 [x] a_b `c` R&D")], "5 \\* 3 \\< 20 \\[x\\] a\\_b \\`c\\` R\\&D"),
        ([], ""),
    ],
)
def test_rich_text(rich: list[Json], expected: str) -> None:
    assert markdown(rich) == expected


def test_rich_text_without_plain_text() -> None:
    assert (
        plain([{"type": "text", "text": {"content": "a"}}, {"type": "equation", "equation": {"expression": "b"}}])
        == "ab"
    )
    assert plain(None) == ""
