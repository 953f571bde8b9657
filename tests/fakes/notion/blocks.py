"""Blocks of pages as a test writes them: rich text, one builder a block type, and a little Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Rich = list[dict[str, Any]]

PLAIN = {
    "bold": False,
    "italic": False,
    "strikethrough": False,
    "underline": False,
    "code": False,
    "color": "default",
}


@dataclass(slots=True, eq=False)
class Block:
    """One block. A world fills in the rest when the block becomes part of a page.

    Attributes:
        type: as the API names it, in version 2026-03-11.
        payload: what the API shows below the key of that name; `{"$file": id}` stands for a stored file.
        refuses: what its type is called in the API's refusal to read it; None for a block that can be read.
    """

    type: str
    payload: dict[str, Any] = field(default_factory=dict)
    children: list[Block] = field(default_factory=list)
    refuses: str | None = None
    id: str = ""
    parent: str = ""
    page: str = ""
    created: datetime | None = None
    edited: datetime | None = None


def text(content: str, *, href: str | None = None, **annotations: Any) -> dict[str, Any]:
    """One piece of rich text."""
    return {
        "type": "text",
        "text": {"content": content, "link": {"url": href} if href else None},
        "annotations": {**PLAIN, **annotations},
        "plain_text": content,
        "href": href,
    }


def mention(kind: str, value: Any, plain: str, href: str | None = None) -> dict[str, Any]:
    """A mention: `user`, `date`, `page`, `database`, `link_mention`, `link_preview`, `custom_emoji` and so on."""
    said = {"type": kind, kind: value}
    return {"type": "mention", "mention": said, "annotations": dict(PLAIN), "plain_text": plain, "href": href}


def formula(expression: str) -> dict[str, Any]:
    """An equation within a line."""
    said = {"expression": expression}
    return {"type": "equation", "equation": said, "annotations": dict(PLAIN), "plain_text": expression, "href": None}


def rich(*parts: str | dict[str, Any]) -> Rich:
    """Rich text from plain strings and pieces; an empty string gives none, as the API does."""
    return [text(part) if isinstance(part, str) else part for part in parts if part != ""]


def _rich(said: str | Rich) -> Rich:
    return rich(said) if isinstance(said, str) else said


def block(kind: str, said: str | Rich = "", children: Sequence[Block] = (), **more: Any) -> Block:
    """A block that has rich text and a color, of a type that needs nothing else."""
    return Block(kind, {"rich_text": _rich(said), "color": "default", **more}, list(children))


def paragraph(said: str | Rich = "", children: Sequence[Block] = ()) -> Block:
    """A paragraph."""
    return block("paragraph", said, children, icon=None)


def heading(level: int, said: str | Rich, children: Sequence[Block] = ()) -> Block:
    """A heading of level 1 to 4; one with children is toggleable."""
    return block(f"heading_{level}", said, children, is_toggleable=bool(children))


def bullet(said: str | Rich, children: Sequence[Block] = ()) -> Block:
    """An item of a bulleted list."""
    return block("bulleted_list_item", said, children)


def number(said: str | Rich, children: Sequence[Block] = ()) -> Block:
    """An item of a numbered list."""
    return block("numbered_list_item", said, children)


def to_do(said: str | Rich, *, checked: bool = False, children: Sequence[Block] = ()) -> Block:
    """A to-do."""
    return block("to_do", said, children, checked=checked)


def quote(said: str | Rich, children: Sequence[Block] = ()) -> Block:
    """A quote."""
    return block("quote", said, children)


def toggle(said: str | Rich, children: Sequence[Block] = ()) -> Block:
    """A toggle."""
    return block("toggle", said, children)


def callout(said: str | Rich, children: Sequence[Block] = (), emoji: str = "💡") -> Block:
    """A callout."""
    return block("callout", said, children, icon={"type": "emoji", "emoji": emoji})


def code(said: str, language: str = "python", caption: str = "") -> Block:
    """A code block."""
    return Block("code", {"rich_text": _rich(said), "caption": _rich(caption), "language": language})


def equation(expression: str) -> Block:
    """An equation of its own."""
    return Block("equation", {"expression": expression})


def bare(kind: str, children: Sequence[Block] = (), **payload: Any) -> Block:
    """A block that has no text: `divider`, `breadcrumb`, `table_of_contents`, `tab`, `column`, `column_list`."""
    return Block(kind, payload, list(children))


def columns(*each: Sequence[Block]) -> Block:
    """A list of columns."""
    return bare("column_list", [bare("column", inside) for inside in each])


def table(rows: Sequence[Sequence[str | Rich]], *, header: bool = True) -> Block:
    """A table; the first row is its header."""
    lines = [Block("table_row", {"cells": [_rich(cell) for cell in row]}) for row in rows]
    width = len(rows[0]) if rows else 0
    return bare("table", lines, table_width=width, has_column_header=header, has_row_header=False)


def linked(kind: str, url: str, caption: str = "") -> Block:
    """A `bookmark` or an `embed`; a `link_preview` has no caption."""
    return Block(kind, {"url": url} if kind == "link_preview" else {"url": url, "caption": _rich(caption)})


def media(kind: str, source: str, caption: str = "", name: str | None = None) -> Block:
    """An `image`, `video`, `pdf`, `file` or `audio`: from an address, or a file stored in a world by its id."""
    stored = not source.startswith("http")
    where = {"type": "file", "file": {"$file": source}} if stored else {"type": "external", "external": {"url": source}}
    named = {"name": name or "file"} if kind == "file" else {}
    return Block(kind, {**where, "caption": _rich(caption), **named})


def synced(children: Sequence[Block] = (), *, of: str | None = None) -> Block:
    """The original of a synced block, or a reference to the one of that id."""
    return Block("synced_block", {"synced_from": {"type": "block_id", "block_id": of} if of else None}, list(children))


def link_to(kind: str, target: str) -> Block:
    """A link to a page or a database: kind `page_id` or `database_id`."""
    return Block("link_to_page", {"type": kind, kind: target})


def template(said: str | Rich, children: Sequence[Block] = ()) -> Block:
    """A template button, of old pages."""
    return Block("template", {"rich_text": _rich(said)}, list(children))


def unsupported(block_type: str, children: Sequence[Block] = ()) -> Block:
    """A block that the API names but does not show; reading it, or what is below it, is refused."""
    return Block("unsupported", {"block_type": block_type}, list(children), refuses=block_type)


def meeting(title: str, summary: Sequence[Block], notes: Sequence[Block], transcript: Sequence[Block]) -> Block:
    """Notes of a meeting; called `transcription` before version 2026-03-11."""
    sections = [paragraph("", inside) for inside in (summary, notes, transcript)]
    return Block("meeting_notes", {"title": _rich(title), "status": "notes_ready"}, sections)


_LINES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Block]], ...] = (
    (re.compile(r"(#{1,4}) (.*)"), lambda match: heading(len(match[1]), match[2])),
    (re.compile(r"- \[([ x])\] (.*)"), lambda match: to_do(match[2], checked=match[1] == "x")),
    (re.compile(r"- (.*)"), lambda match: bullet(match[1])),
    (re.compile(r"\d+\. (.*)"), lambda match: number(match[1])),
    (re.compile(r"> (.*)"), lambda match: quote(match[1])),
    (re.compile(r"---"), lambda match: bare("divider")),
    (re.compile(r"(.+)"), lambda match: paragraph(match[1])),
)


def from_markdown(source: str) -> list[Block]:
    """Blocks from simple Markdown, a line a block; nothing within a line is understood."""
    made: list[Block] = []
    fence: list[str] | None = None
    for line in source.splitlines():
        if line.startswith("```"):
            if fence is None:
                fence = [line[3:] or "plain text"]
            else:
                made.append(code("\n".join(fence[1:]), fence[0]))
                fence = None
        elif fence is not None:
            fence.append(line)
        elif line.strip():
            made.append(next(build(match) for pattern, build in _LINES if (match := pattern.fullmatch(line))))
    return made


def texts_of_rich(said: Rich) -> list[str]:
    """The texts that a reader must get, a line of a piece each; a mentioned person without the `@`."""
    return [line.strip() for part in said for line in part["plain_text"].removeprefix("@").split("\n") if line.strip()]


def texts_of(one: Block) -> list[str]:
    """The texts that a reader must get of one block, without those below it."""
    payload = one.payload
    found = [line for key in ("title", "rich_text", "caption") for line in texts_of_rich(payload.get(key, []))]
    found += [line for cell in payload.get("cells", []) for line in texts_of_rich(cell)]
    if one.type == "equation":
        found.append(payload["expression"])
    if one.type in ("bookmark", "embed", "link_preview"):
        found.append(payload["url"])
    return found
