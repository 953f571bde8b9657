"""The connector to Notion against a fake of its API, over HTTP."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from pipelines.errors import ConfigurationError, GristmillError, RetryableError, UnavailableError
from pipelines.extract.job import Job
from pipelines.extract.markdown import extract_markdown
from tests.fakes.notion import Fault, NotionServer, World, zoo
from tests.fakes.notion import blocks as b
from worker.connectors.contract import Document, Gone, Incomplete, Item, Known, Surroundings, Unchanged, Visit
from worker.connectors.notion import NotionConfig
from worker.connectors.notion.connector import NotionConnector, open_notion
from worker.connectors.notion.listing import LEAVES
from worker.settings import Settings

TOKEN = "ntn_fake"
_folders = itertools.count()


def key_of(page: str) -> str:
    return page.replace("-", "")


@dataclass
class Place:
    """A workspace, its server, and what a ledger would remember of it."""

    world: World
    server: NotionServer
    settings: Settings
    folder: Path
    known: dict[str, Known] = field(default_factory=dict)
    cursor: dict[str, Any] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.world.manual.advance(seconds)

    def connector(self, **config: Any) -> NotionConnector:
        config = {"type": "notion", "base_url": self.server.base_url, "requests_per_second": 1000, **config}
        surroundings = Surroundings(
            self.settings, self.world.manual, self.wait, self.cursor, lambda: iter(tuple(self.known.values()))
        )
        opened = open_notion(NotionConfig.model_validate(config), surroundings, token=TOKEN)
        assert isinstance(opened, NotionConnector)
        return opened

    def visit(self, connector: NotionConnector, key: str) -> Visit:
        folder = self.folder / str(next(_folders))
        folder.mkdir()
        found = connector.visit(key, self.known.get(key), folder)
        if isinstance(found, Document):
            self.known[key] = Known(key, found.uri, found.version, found.state)
        return found

    def one(self, page: str, **config: Any) -> Visit:
        with self.connector(**config) as connector:
            return self.visit(connector, key_of(page))

    def document(self, page: str, **config: Any) -> Document:
        found = self.one(page, **config)
        assert isinstance(found, Document)
        return found

    def run(self, *, full: bool, visits: bool = True, **config: Any) -> tuple[dict[str, str | None], list[str]]:
        """One run: the versions that were listed, and why the listing was not complete."""
        listed: dict[str, str | None] = {}
        incomplete = []
        with self.connector(**config) as connector:
            for item in connector.listing(full=full):
                if isinstance(item, Incomplete):
                    incomplete.append(item.reason)
                    continue
                assert item.key not in listed
                listed[item.key] = item.version
                known = self.known.get(item.key)
                if visits and (known is None or known.version != item.version):
                    self.visit(connector, item.key)
            self.cursor = dict(connector.cursor())
        return listed, incomplete


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    world = World()
    settings = Settings(home=tmp_path / "home", fetch_allow=("127.0.0.1",), max_bytes=100_000)
    with NotionServer(world, token=TOKEN) as server:
        yield Place(world, server, settings, tmp_path)


def read(document: Document, folder: Path) -> tuple[str | None, str]:
    """Title and text as the pipeline finds them."""
    assert isinstance(document.content, bytes)
    path = folder / "document.md"
    path.write_bytes(document.content)
    found = extract_markdown(Job(path, "text/markdown"))
    return found.title, "\n".join(block.text for block in found.blocks)


def squeezed(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("by_blocks", [False, True])
def test_every_block_and_property_is_read(place: Place, tmp_path: Path, by_blocks: bool) -> None:
    made = zoo(place.world)
    place.world.markdown_on = not by_blocks
    place.world.manual.advance(600)
    page = place.document(made.page)
    title, text = read(page, tmp_path)
    assert title == page.metadata["title"] == "The zoo"
    assert made.escaped in text
    missing = {kind: [one for one in said if squeezed(one) not in squeezed(text)] for kind, said in made.texts.items()}
    assert {kind: said for kind, said in missing.items() if said} == {}
    assert "Never" not in text
    assert "X-Amz" not in page.content.decode()  # type: ignore[union-attr]
    assert page.state["children"] == [key_of(made.child)]
    assert page.state["databases"] == [key_of(made.database)]
    assert any("synced block" in reason for reason in page.unread)
    assert page.version == "2026-09-01T08:00:00.000Z"

    row = place.document(made.row)
    _, text = read(row, tmp_path)
    properties = row.metadata["properties"]
    for name, said in made.properties.items():
        if name not in ("Friends", "Changed", "Changer", "Push", "Name"):
            assert all(squeezed(one) in squeezed(text) for one in said), name
    assert properties["Friends"] == [key_of(friend) for friend in made.friends]
    assert (properties["Count"], properties["Number"], properties["Done"]) == (42.5, "ZOO-12", True)
    assert not {"Changed", "Changer", "Name"} & set(properties)
    assert row.metadata["path"] == "The zoo › Zoo database"
    assert "Text of the row" in text


def test_both_ways_to_a_text_give_the_same(place: Place, tmp_path: Path) -> None:
    page = place.world.create_page(
        None,
        "Plan",
        [
            b.heading(2, "Aims", [b.paragraph("Inside")]),
            b.bullet("one", [b.number("two", [b.to_do("three", checked=True)])]),
            b.quote("said", [b.paragraph("and more")]),
            b.table([["A", "B|C"], ["1", "snake_case *x*"]]),
            b.code("if a < b:\n\tpass", "python"),
            b.columns([b.paragraph("Left")], [b.paragraph("Right")]),
            b.linked("bookmark", "https://example.com/x", "A site"),
            b.paragraph("Last"),
        ],
    )
    by_markdown = place.document(page)
    place.world.markdown_on = False
    assert place.document(page).content == by_markdown.content
    assert place.server.counts["pages.markdown"] == 1


def test_the_title_is_no_text_and_an_empty_page_has_one(place: Place, tmp_path: Path) -> None:
    full = place.world.create_page(None, 'A "quoted": title', markdown='# A "quoted": title\n\n# First\n\nText')
    assert read(place.document(full), tmp_path) == ('A "quoted": title', "First\nText")
    empty = place.world.create_page(None, "Only a title")
    assert read(place.document(empty), tmp_path) == ("Only a title", "Only a title")
    untitled = place.document(place.world.create_page(None, ""))
    assert (untitled.filename, untitled.metadata["title"]) == ("page.md", "Untitled")
    assert place.document(full).filename == "A _quoted__ title.md"


def test_a_truncated_page_is_fetched_in_parts(place: Place, tmp_path: Path) -> None:
    place.world.markdown_limit = 4
    page = place.world.create_page(
        None, "Long", [b.bullet(f"item {at}", [b.paragraph(f"below {at}")]) for at in range(9)]
    )
    child = place.world.create_page(page, "Child", [b.paragraph("Text of its own")])
    document = place.document(page)
    _, text = read(document, tmp_path)
    assert text.split("\n")[:-1] == [line for at in range(9) for line in (f"item {at}", f"below {at}")]
    assert "Text of its own" not in text
    assert document.state["children"] == [key_of(child)]
    assert document.unread == ()


def test_a_part_that_is_not_shared_is_unread(place: Place, tmp_path: Path) -> None:
    page = place.world.create_page(None, "Page", [b.paragraph("Before")])
    child = place.world.create_page(page, "Secret child")
    place.world.edit(page, [b.paragraph("After")], append=True)
    place.world.unshare(child)
    document = place.document(page)
    assert read(document, tmp_path)[1] == "Before\nAfter"
    assert len(document.unread) == 1


def test_files_are_fetched_once(place: Place) -> None:
    world = place.world
    page = world.create_page(None, "Files", [b.paragraph("See")])
    world.add_file(page, "plan.pdf", b"%PDF one", kind="pdf", caption="The plan")
    world.edit(
        page, [b.media("image", "https://example.com/out.png"), b.media("video", "https://example.com/v")], append=True
    )
    first = place.document(page)
    (file,) = first.enclosures
    assert file.path is not None
    assert file.path.read_bytes() == b"%PDF one"
    assert (file.filename, file.uri) == ("plan.pdf", f"{first.uri}#{file.key}")
    assert first.uri == f"https://www.notion.so/{key_of(page)}"
    assert first.state["files"] == {file.key: file.version}

    place.server.counts.clear()
    second = place.document(page)
    assert second.content == first.content
    assert [(one.key, one.path, one.version) for one in second.enclosures] == [(file.key, None, file.version)]
    assert place.server.counts["files"] == 0
    assert place.document(page, files=False).enclosures == ()


def test_a_signature_that_ran_out_is_renewed(place: Place) -> None:
    made = zoo(place.world)
    for page in (made.page, made.row):
        denied = Fault("restricted")
        place.server.faults.script(denied, on="files", times=1)
        document = place.document(page)
        assert {one.filename for one in document.enclosures} >= {"report.pdf"}
        assert all(one.path is not None and one.path.is_file() for one in document.enclosures)


def test_a_file_that_cannot_be_had_costs_no_page(place: Place) -> None:
    world = place.world
    page = world.create_page(None, "Files", [b.paragraph("See")])
    world.add_file(page, "large.pdf", b"x" * 200_000)
    world.add_file(page, "later.pdf", b"%PDF later")
    world.manual.advance(600)
    place.server.faults.script("internal", on="files", skip=1)
    first = place.document(page)
    assert first.enclosures == ()
    assert [reason.split(":")[0] for reason in first.unread] == ["the file large.pdf", "the file later.pdf"]
    assert first.again_in == 3600
    second = place.document(page)
    assert [one.filename for one in second.enclosures] == ["later.pdf"]
    assert second.again_in is None


def test_a_version_settles_two_minutes_after_the_edit(place: Place) -> None:
    page = place.world.create_page(None, "Page")
    assert place.document(page).version is None
    place.world.manual.advance(120)
    edited = place.document(page)
    assert edited.version == "2026-09-01T08:00:00.000Z"
    # An event tells of an edit that left the time as it was: the page is read again.
    place.world.edit(page, markdown="New text", silent=True)
    again = place.document(page)
    assert again.version == edited.version
    assert b"New text" in again.content  # type: ignore[operator]


def test_an_edit_while_the_page_is_read_is_seen_next_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    page = place.world.create_page(None, "Page", markdown="Old text")
    place.world.manual.advance(600)
    with place.connector() as connector:
        real = connector.api.markdown

        def edited_before(key: str) -> Any:
            place.world.edit(page, markdown="New text")
            return real(key)

        monkeypatch.setattr(connector.api, "markdown", edited_before)
        place.visit(connector, key_of(page))
    place.world.manual.advance(600)
    listed, _ = place.run(full=True, visits=False)
    assert listed[key_of(page)] != place.known[key_of(page)].version is not None


def test_gone_pages(place: Place) -> None:
    world = place.world
    trashed, hidden = (world.create_page(None, name) for name in ("Trashed", "Hidden"))
    world.trash(trashed)
    world.unshare(hidden)
    for page, reason in ((trashed, "trash"), (hidden, "not shared")):
        found = place.one(page)
        assert isinstance(found, Gone)
        assert found.at_once
        assert reason in found.reason


def test_everything_is_listed_although_search_is_not_exhaustive(place: Place) -> None:
    world = place.world
    top = world.create_page(None, "Top")
    found, lost = world.create_page(top, "Found"), world.create_page(top, "Lost")
    deep = world.create_page(lost, "Deep below the lost")
    database, source = world.create_database(lost, "Lost database")
    row = world.create_page(source, "Row")
    pages = {key_of(page) for page in (top, found, lost, deep, row)}
    world.unsearchable |= {lost, deep, row, source, database}
    world.manual.advance(600)
    listed, incomplete = place.run(full=True)
    assert (set(listed), incomplete) == (pages, [])
    assert set(place.known) == pages
    place.server.counts.clear()
    listed, _ = place.run(full=True)  # now by what is known; nothing is visited
    assert set(listed) == pages
    assert place.server.counts["pages.markdown"] == 0


def test_a_page_that_search_never_names_is_found_when_it_is_shared_again(place: Place) -> None:
    above = place.world.create_page(None, "Above")
    page = place.world.create_page(above, "Below")
    place.world.unsearchable.add(page)
    place.world.manual.advance(3600)
    assert key_of(page) in place.run(full=True)[0]
    place.world.unshare(page)
    del place.known[key_of(page)]  # forgotten once that is confirmed
    for _ in range(3):
        place.world.manual.advance(3600)
        assert key_of(page) not in place.run(full=True)[0]
    place.world.share(page)
    place.world.manual.advance(3600)
    assert key_of(page) in place.run(full=True)[0]


def test_a_page_that_comes_back_elsewhere_is_found_though_nobody_names_it(place: Place) -> None:
    above, other = place.world.create_page(None, "Above"), place.world.create_page(None, "Other")
    page = place.world.create_page(above, "Below")
    place.world.unsearchable.add(page)
    place.world.manual.advance(3600)
    place.run(full=True)
    place.world.trash(page)
    with place.connector() as connector:
        listed = [item for item in connector.listing(full=True) if isinstance(item, Item)]
        assert isinstance(place.visit(connector, key_of(page)), Gone)
        place.cursor = dict(connector.cursor())
    del place.known[key_of(page)]
    place.world.manual.advance(3600)
    place.world.edit(above, markdown="It names no page any more.")
    place.run(full=False)
    place.world.move(page, other)
    place.world.restore(page)
    place.world.manual.advance(3600)
    assert key_of(page) in place.run(full=True)[0], listed


def test_pages_that_are_not_there_are_asked_for_in_turns(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.connectors.notion.listing.MOST_ABSENT", 2)
    above = place.world.create_page(None, "Above")
    below = [place.world.create_page(above, f"Below {at}") for at in range(5)]
    place.world.manual.advance(3600)
    place.run(full=True)
    for page in below:
        place.world.unshare(page)
        del place.known[key_of(page)]
    place.run(full=True)
    asked = []
    for _ in range(3):
        place.world.manual.advance(3600)
        place.server.requests_log.clear()
        place.run(full=True)
        paths = " ".join(call.path.replace("-", "") for call in place.server.requests_log)
        asked.append({key_of(page) for page in below if key_of(page) in paths})
    assert [len(one) for one in asked] == [2, 2, 2]
    assert asked[0] | asked[1] | asked[2] == {key_of(page) for page in below}


def test_changes_are_listed(place: Place) -> None:
    world = place.world
    pages = [world.create_page(None, f"Page {at}") for at in range(130)]
    world.manual.advance(3600)
    place.run(full=True)
    assert place.cursor == {"since": "2026-09-01T08:00:00.000Z"}
    world.edit(pages[7], markdown="New")
    world.manual.advance(3600)
    place.server.counts.clear()
    listed, incomplete = place.run(full=False)
    assert (incomplete, place.server.counts["pages.markdown"]) == ([], 1)
    world.trash(pages[8])
    world.manual.advance(1800)
    # What the last run saw is seen again, ten minutes back; the page in the trash leaves.
    listed, incomplete = place.run(full=False, visits=False)
    assert listed == {
        key_of(pages[7]): "2026-09-01T09:00:00.000Z",
        key_of(pages[8]): f"2026-09-01T10:00:00.000Z{LEAVES}",
    }
    assert place.cursor == {"since": "2026-09-01T09:00:00.000Z"}
    assert isinstance(place.one(pages[8]), Gone)


def test_the_page_object_of_the_listing_saves_a_request(place: Place) -> None:
    for at in range(3):
        place.world.create_page(None, f"Page {at}")
    place.run(full=True)
    assert place.server.counts["pages"] == 0
    assert place.server.counts["pages.markdown"] == 3


def test_what_a_complete_listing_missed_is_glanced_at(place: Place) -> None:
    page = place.world.create_page(None, "Page")
    place.world.manual.advance(600)
    place.run(full=True)
    place.world.unsearchable.add(page)
    with place.connector() as connector:
        assert list(connector.listing(full=True)) == []
        known = place.known[key_of(page)]
        assert place.visit(connector, key_of(page)) == Unchanged(known.version, known.state)


def test_roots(place: Place) -> None:
    world = place.world
    root, other = world.create_page(None, "Root"), world.create_page(None, "Other")
    toggle = b.toggle("Toggle")
    world.edit(root, [toggle])
    below = world.create_page(root, "Below")
    database, source = world.create_database(other, "Base")
    row = world.create_page(source, "Row")
    under_row = world.create_page(row, "Under the row")
    outside = world.create_page(other, "Outside")
    gone = world.create_page(None, "Gone")
    world.unshare(gone)
    expected = {key_of(page) for page in (root, below, row, under_row)}
    for base in (database, source):
        listed, incomplete = place.run(
            full=True, visits=False, roots=[f"https://www.notion.so/Root-{key_of(root)}", base, gone]
        )
        assert set(listed) == expected
        assert incomplete == [
            f"the root https://www.notion.so/{key_of(gone)} is not shared with the connection, or there is none"
        ]
    assert isinstance(place.one(outside, roots=[root]), Gone)
    place.run(full=True, roots=[root])
    assert set(place.known) == {key_of(root), key_of(below)}
    world.move(below, other)
    listed, _ = place.run(full=True, visits=False, roots=[root])
    assert (listed[key_of(below)] or "").endswith(LEAVES)
    moved = place.one(below, roots=[root])
    assert isinstance(moved, Gone)
    assert moved.at_once


def test_the_path_does_not_depend_on_what_was_read_before(place: Place) -> None:
    world = place.world
    page = world.create_page(world.create_page(world.create_page(None, "A"), "B"), "C")
    place.run(full=True)
    listed = place.known[key_of(page)]
    assert place.document(page).metadata["path"] == "A › B"
    assert place.known[key_of(page)].state == listed.state


def test_more_rows_than_a_query_gives(place: Place) -> None:
    world = place.world
    world.query_limit = 5
    _, source = world.create_database(None, "Base")
    rows = set()
    for at in range(12):
        rows.add(key_of(world.create_page(source, f"Row {at}")))
        world.manual.advance(30)
    world.unsearchable |= {row for row in world.nodes if row != source}
    assert place.run(full=True, visits=False) == (dict.fromkeys(rows) | place.run(full=True, visits=False)[0], [])
    for at in range(8):
        world.unsearchable.add(world.create_page(source, f"Same minute {at}"))
    listed, incomplete = place.run(full=True, visits=False)
    assert set(listed) > rows
    assert len(incomplete) == 1
    assert "ends early" in incomplete[0]


@pytest.mark.parametrize("fault", ["repeat_cursor", "incomplete"])
def test_a_search_that_does_not_end_well_is_incomplete(place: Place, fault: Any) -> None:
    pages = [place.world.create_page(None, f"Page {at}") for at in range(3)]
    place.server.faults.script(fault, on="search", times=math.inf)
    listed, incomplete = place.run(full=True, visits=False)
    assert len(listed) == len(pages)
    assert incomplete
    assert place.cursor == {}
    assert place.server.counts["search"] < 10


@contextmanager
def answering(answer: Callable[[httpx.Request], httpx.Response], settings: Settings) -> Iterator[NotionConnector]:
    config = NotionConfig(type="notion", requests_per_second=1000)
    with NotionConnector(
        config, Surroundings(settings, wait=lambda seconds: None), TOKEN, httpx.MockTransport(answer)
    ) as connector:
        yield connector


def _made_up(number: int) -> dict[str, Any]:
    return {
        "object": "page",
        "id": f"{number:032x}",
        "last_edited_time": "2026-09-01T08:00:00.000Z",
        "properties": {},
        "parent": {"type": "workspace", "workspace": True},
    }


def test_a_large_workspace_is_listed_page_by_page(tmp_path: Path) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        start = 100 * (len(asked) - 1)
        results = [_made_up(number) for number in range(start, start + 100)] if start < 10_000 else []
        more = start < 9_900
        return httpx.Response(
            200, json={"results": results, "has_more": more, "next_cursor": str(start) if more else None}
        )

    with answering(answer, Settings(home=tmp_path)) as connector:
        listing = connector.listing(full=True)
        for _ in range(150):
            assert isinstance(next(listing), Item)
        assert len(asked) == 2
        assert len(list(listing)) == 9_850
    assert len(asked) == 101


def test_a_listing_that_brings_nothing_new_ends(tmp_path: Path) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={"results": [_made_up(1)], "has_more": True, "next_cursor": str(len(asked))})

    with answering(answer, Settings(home=tmp_path)) as connector:
        first, *rest = connector.listing(full=True)
    assert isinstance(first, Item)
    assert [type(one) for one in rest] == [Incomplete] * len(rest)
    assert len(asked) < 30


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        (Fault("rate_limited", retry_after=7), 4),
        ("overloaded", 4),
        ("unavailable", 4),
        ("internal", 4),
        ("bad_gateway", 2),
        ("gateway_timeout", 2),
        ("conflict", 2),
        ("dropped", 2),
        ("cut", 2),
        ("cut_json", 2),
        ("html", 2),
    ],
)
@pytest.mark.parametrize("endpoint", ["search", "pages.markdown"])
def test_passing_failures_are_waited_for(place: Place, fault: Any, times: int, endpoint: str) -> None:
    page = place.world.create_page(None, "Page", markdown="Text")
    place.server.faults.script(fault, on=endpoint, times=times)
    listed, incomplete = place.run(full=True)
    assert (list(listed), incomplete) == ([key_of(page)], [])
    long = [seconds for seconds in place.waits if seconds > 0.1]
    assert len(long) == times
    if isinstance(fault, Fault):
        assert long == [7.0] * times


@pytest.mark.parametrize(
    ("fault", "expected", "retry_after", "tries"),
    [
        (Fault("rate_limited", retry_after=600), UnavailableError, 600, 1),
        (Fault("rate_limited", retry_after=1), UnavailableError, 1, 5),
        (Fault("overloaded"), UnavailableError, None, 5),
        ("unavailable", UnavailableError, None, 5),
        ("internal", RetryableError, None, 5),
        ("gateway_timeout", RetryableError, None, 5),
        ("unauthorized", ConfigurationError, None, 1),
    ],
)
def test_lasting_failures_end_the_visit_or_the_run(
    place: Place, fault: Any, expected: type[GristmillError], retry_after: float | None, tries: int
) -> None:
    page = place.world.create_page(None, "Page")
    place.server.faults.script(fault, times=math.inf)
    with place.connector() as connector:
        with pytest.raises(expected) as caught:
            place.visit(connector, key_of(page))
        assert type(caught.value) is expected
        assert connector.api.requests == tries
        assert getattr(caught.value, "retry_after", None) == retry_after
        if expected is RetryableError:  # a second object in a row: it is not about the object
            with pytest.raises(UnavailableError):
                place.visit(connector, key_of(page))
    assert TOKEN not in str(caught.value)


def test_no_answer_in_time_is_tried_twice(place: Place, tmp_path: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("slow", request=request)

    with answering(answer, place.settings) as connector:
        with pytest.raises(RetryableError) as caught:
            connector.visit("1" * 32, None, tmp_path)
        assert not isinstance(caught.value, UnavailableError)
        with pytest.raises(UnavailableError):
            connector.visit("2" * 32, None, tmp_path)
        assert connector.api.requests == 4


def test_a_server_that_is_down_is_away(place: Place) -> None:
    page = place.world.create_page(None, "Page")
    place.server.stop()
    with pytest.raises(UnavailableError):
        place.one(page)
    place.server.start()
    assert isinstance(place.one(page), Document)


def test_requests_are_paced(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(4):
        place.world.create_page(None, f"Page {at}")
    # No time passes but what is waited for.
    clock = SimpleNamespace(monotonic=lambda: place.world.manual().timestamp())
    monkeypatch.setattr("worker.connectors.notion.api.time", clock)
    place.run(full=True, requests_per_second=2)
    requests = sum(place.server.counts.values())
    assert requests > 4
    assert place.waits == [0.5] * (requests - 1)


def test_a_cursor_is_never_after_the_start_of_the_run(place: Place) -> None:
    place.world.create_page(None, "Page")
    with place.connector() as connector:
        place.world.manual.advance(timedelta(minutes=5).total_seconds())
        place.world.create_page(None, "Made meanwhile")
        assert len(list(connector.listing(full=True))) == 2
        assert connector.cursor() == {"since": "2026-09-01T08:00:07.000Z"}


def test_events_and_uris(place: Place) -> None:
    page = place.world.create_page(None, "Page")
    with place.connector() as connector:
        assert connector.pushed([{"entity": {"type": "page", "id": page}}, {"id": page}]) == (key_of(page),)
        assert connector.uri_of(key_of(page)) == f"https://www.notion.so/{key_of(page)}"
        assert (connector.absence, connector.incremental) == ("ask", True)
