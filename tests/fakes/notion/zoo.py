"""A page with every type of block, a row with every type of property, and what each must give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.fakes.notion import blocks as b
from tests.fakes.notion import properties as values
from tests.fakes.notion.blocks import Block
from tests.fakes.notion.world import World

SCHEMA = {
    "Notes": "rich_text",
    "Count": "number",
    "Choice": "select",
    "Tags": "multi_select",
    "State": "status",
    "When": "date",
    "Who": "people",
    "Papers": "files",
    "Done": "checkbox",
    "Link": "url",
    "Mail": "email",
    "Phone": "phone_number",
    "Sum": "formula",
    "Said": "formula",
    "Friends": "relation",
    "Total": "rollup",
    "Gathered": "rollup",
    "Made": "created_time",
    "Maker": "created_by",
    "Changed": "last_edited_time",
    "Changer": "last_edited_by",
    "Number": "unique_id",
    "Checked": "verification",
    "Push": "button",
    "Place": "place",
}
"""Every type of property, besides the title."""


@dataclass(slots=True)
class Zoo:
    """Where everything is.

    Attributes:
        page: the page with all blocks.
        row: a row of `source` with all properties; `database` is below the page.
        friends: 30 pages that the row relates to, more than a page object shows.
        texts: the texts that each type of block must give, by type.
        only_blocks: types whose texts Markdown does not have, only the block endpoints.
        escaped: a text full of characters that Markdown escapes.
        unreadable: blocks that cannot be read at all, by what they are.
        files: stored files by name.
        properties: the texts that each property must give, by name.
    """

    page: str
    row: str
    database: str
    source: str
    child: str
    friends: list[str]
    texts: dict[str, list[str]]
    only_blocks: tuple[str, ...]
    escaped: str
    unreadable: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    properties: dict[str, list[str]] = field(default_factory=dict)


ESCAPED = r"Five * 3 < 20 [and] {so} ~on~ | up ^ `tick` $1 \o/"


def zoo(world: World) -> Zoo:
    """Make it all, in the workspace."""
    hidden = world.create_page(None, "Hidden source", [b.synced([b.paragraph("Never to be seen")])])
    lost = world.nodes[hidden].blocks[0].id
    world.unshare(hidden)
    files = {
        name: world.store_file(name, content, mime)
        for name, content, mime in (
            ("report.pdf", b"%PDF-1.4 zoo", "application/pdf"),
            ("notes.txt", b"Zoo notes in a file", "text/plain"),
            ("photo.png", b"\x89PNG zoo", "image/png"),
        )
    }
    original = b.synced([b.paragraph("Synced text of the original")])
    page = world.create_page(None, "The zoo", [], icon="🦓")
    world.edit(page, [original], append=True)
    child = world.create_page(page, "A child page", [b.paragraph("Text of the child page")])
    database, source = world.create_database(page, "Zoo database", SCHEMA, inline=True)
    everything = [*_written(child, database), *_held(files), b.synced(of=original.id)]
    unreadable = {
        "unsupported": b.unsupported("form"),
        "unsupported with children": b.unsupported("button", [b.paragraph("Never shown")]),
        "ai_block": b.unsupported("ai_block", [b.paragraph("Never shown by an AI")]),
        "synced_block of an unshared page": b.synced(of=lost),
    }
    world.edit(page, [*everything, *unreadable.values()], append=True)
    friends = [world.create_page(source, f"Friend {at}") for at in range(30)]
    row = world.create_page(source, "A row with everything", [b.paragraph("Text of the row")])
    world.set_properties(row, _properties(world, files, friends))
    node = world.nodes[row]
    said = {name: values.texts(kind, value) for name, (kind, value) in node.properties.items()}
    texts: dict[str, list[str]] = {}
    _gather([original, *everything], texts)
    only_blocks = ("bookmark", "embed", "link_preview", "template")
    return Zoo(
        page,
        row,
        database,
        source,
        child,
        friends,
        texts,
        only_blocks,
        ESCAPED,
        {what: one.id for what, one in unreadable.items()},
        files,
        {name: found for name, found in said.items() if found},
    )


def _gather(found: list[Block], into: dict[str, list[str]]) -> None:
    for one in found:
        # A template's children are shown by the block endpoints only, like the template.
        into.setdefault(one.type, []).extend(b.texts_of(one))
        if one.type == "meeting_notes":
            _gather([below for section in one.children[:2] for below in section.children], into)
        elif one.type != "template":
            _gather(one.children, into)


def _written(child: str, database: str) -> list[Block]:
    """Blocks of text."""
    person = {"object": "user", "id": "6794760a-1f15-45cd-9c65-0dfe42f5135a", "name": "Ada Lovelace"}
    emoji = {"id": "45ce454c-d427-4f53-9489-e5d0f3d1db6b", "name": "bufo", "url": "https://files.example/bufo.png"}
    date, link = values.date("2026-05-17"), {"href": "https://example.com/mentioned", "title": "A mentioned site"}
    mixed = b.rich(
        "Plain then ",
        b.text("bold words", bold=True),
        b.text(" italic words", italic=True),
        b.text(" struck words", strikethrough=True),
        b.text(" underlined words", underline=True),
        b.text(" code words", code=True),
        b.text(" red words", color="red"),
        b.text(" linked words", href="https://example.com/linked"),
        b.formula("e^{i\\pi}"),
        b.mention("user", person, "@Ada Lovelace"),
        b.mention("date", date, "2026-05-17"),
        b.mention("page", {"id": child}, "A child page"),
        b.mention("database", {"id": database}, "Zoo database"),
        b.mention("link_mention", link, "A mentioned site", link["href"]),
        b.mention("link_preview", {"url": "https://example.com/pull/7"}, "Pull 7", "https://example.com/pull/7"),
        b.mention("custom_emoji", emoji, ":bufo:"),
    )
    deep = b.bullet("Depth one", [b.bullet("Depth two", [b.bullet("Depth three", [b.bullet("Depth four")])])])
    return [
        b.paragraph("A plain paragraph"),
        b.paragraph(mixed),
        b.paragraph("First line\nsecond line"),
        b.paragraph(ESCAPED),
        b.paragraph(""),
        b.paragraph("A parent paragraph", [b.paragraph("An indented paragraph")]),
        b.heading(1, "Heading of level one"),
        b.heading(2, "Heading of level two"),
        b.heading(3, "Heading of level three"),
        b.heading(4, "Heading of level four"),
        b.heading(2, "Heading that toggles", [b.paragraph("Below a heading")]),
        deep,
        b.number("Numbered item"),
        b.to_do("Open task"),
        b.to_do("Done task", checked=True),
        b.quote("A quoted line"),
        b.toggle("A toggle", [b.paragraph("Inside the toggle")]),
        b.callout("A callout", [b.paragraph("Inside the callout")]),
        b.code("def zoo():\n    return 'x < y'", "python", "A caption of code"),
        b.equation("a^2 + b^2 = c^2"),
        b.table([["Name of animal", "Legs"], ["Zebra", "four"], ["Kiwi", b.rich(b.text("two", bold=True))]]),
        b.columns([b.paragraph("Left column")], [b.paragraph("Right column")]),
        b.bare("tab", [b.paragraph("First tab", [b.paragraph("Inside the first tab")])]),
        b.template("A template button", [b.to_do("From a template")]),
        b.meeting(
            "Weekly meeting",
            [b.paragraph("Summary of the meeting")],
            [b.paragraph("Notes of the meeting")],
            [b.paragraph("Transcript of the meeting")],
        ),
        b.link_to("page_id", child),
        b.link_to("database_id", database),
        b.bare("divider"),
        b.bare("breadcrumb"),
        b.bare("table_of_contents", color="default"),
    ]


def _held(files: dict[str, str]) -> list[Block]:
    """Blocks that hold something from elsewhere."""
    return [
        b.linked("bookmark", "https://example.com/bookmark", "A caption of a bookmark"),
        b.linked("embed", "https://example.com/embed", "A caption of an embed"),
        b.linked("link_preview", "https://example.com/preview"),
        b.media("image", files["photo.png"], "A caption of an image"),
        b.media("image", "https://example.com/outside.png", "A caption of an outside image"),
        b.media("video", "https://example.com/film.mp4", "A caption of a video"),
        b.media("audio", "https://example.com/sound.mp3", "A caption of a sound"),
        b.media("pdf", files["report.pdf"], "A caption of a report"),
        b.media("file", files["notes.txt"], "A caption of a file", "notes.txt"),
    ]


def _properties(world: World, files: dict[str, str], friends: list[str]) -> dict[str, tuple[str, Any]]:
    many = [
        part for at in range(30) for part in (b.text(f"note {at} "), b.mention("user", {"id": "u"}, f"@Guest {at}"))
    ]
    people = [{"object": "user", "id": world.new_id(), "name": f"Person {at}"} for at in range(27)]
    inner = [{"type": "title", "title": b.rich(f"Rolled {at}")} for at in range(3)]
    return {
        "Notes": ("rich_text", many),
        "Count": ("number", 42.5),
        "Choice": ("select", "Chosen one"),
        "Tags": ("multi_select", ["Tag one", "Tag two"]),
        "State": ("status", "In review"),
        "When": ("date", values.date("2026-03-01", "2026-03-09")),
        "Who": ("people", people),
        "Papers": ("files", [("report.pdf", files["report.pdf"]), ("elsewhere.txt", "https://example.com/e.txt")]),
        "Done": ("checkbox", True),
        "Link": ("url", "https://example.com/property"),
        "Mail": ("email", "ada@example.com"),
        "Phone": ("phone_number", "+43 1 234567"),
        "Sum": ("formula", {"type": "number", "number": 7}),
        "Said": ("formula", {"type": "string", "string": "A computed text"}),
        "Friends": ("relation", friends),
        "Total": ("rollup", {"type": "number", "number": 99, "function": "sum"}),
        "Gathered": ("rollup", {"type": "array", "array": inner, "function": "show_original"}),
        "Number": ("unique_id", {"prefix": "ZOO", "number": 12}),
        "Checked": ("verification", {"state": "verified", "verified_by": None, "date": None}),
        "Push": ("button", {}),
        "Place": ("place", {"lat": 48.2, "lon": 16.4, "name": "Schönbrunn", "address": "1130 Wien"}),
    }
