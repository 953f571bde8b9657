"""The fake of Notion, driven by the real client, and compared with another fake."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import httpx
import pytest
from notion_client import APIResponseError, Client
from notion_client.errors import HTTPResponseError, RequestTimeoutError, UnknownHTTPResponseError
from notion_client.helpers import iterate_paginated_api

from tests.fakes.notion import NEW, OLD, Fault, NotionServer, World, blocks, signature, zoo
from tests.fakes.notion.second_opinion import Backlot, backlot_server
from tests.fakes.web_server import Answer, Call, web_server

Connect = Callable[..., Client]
UNKNOWN = "11111111-1111-4111-8111-111111111111"
QUIET: dict[str, Any] = {
    "retry": False,
    "logger": logging.getLogger("notion"),
}  # their own logs each line once a client


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def server(world: World) -> Iterator[NotionServer]:
    with NotionServer(world) as running:
        yield running


@pytest.fixture
def connect(server: NotionServer) -> Iterator[Connect]:
    """Makes real clients, without their own retries."""
    with ExitStack() as made:

        def one(version: str = NEW, **options: Any) -> Client:
            settings = {"auth": server.token, "base_url": server.base_url, **QUIET, **options}
            client = Client(notion_version=version, **settings)
            made.callback(client.close)
            return client

        yield one


@pytest.fixture
def client(connect: Connect) -> Client:
    return connect()


@pytest.fixture
def web() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=60) as plain:
        yield plain


def refusal(call: Callable[[], Any]) -> tuple[int, str]:
    """Status and code of an error."""
    with pytest.raises(HTTPResponseError) as caught:
        call()
    return caught.value.status, str(getattr(caught.value.code, "value", caught.value.code))


def plain(value: Any) -> str:
    """All the text in an answer, a piece a line."""
    return "\n".join(_pieces(value))


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (value[key] for key in ("plain_text", "url", "expression") if isinstance(value.get(key), str))
        for inner in value.values():
            yield from _pieces(inner) if "plain_text" not in value else ()
    elif isinstance(value, list):
        for inner in value:
            yield from _pieces(inner)


def walk(client: Client, block: str) -> Iterator[dict[str, Any]]:
    """All blocks below one, those that are refused without what is below them."""
    for one in iterate_paginated_api(client.blocks.children.list, block_id=block):
        yield one
        if one["has_children"] and one["type"] not in ("child_page", "unsupported"):
            try:
                yield from walk(client, one["id"])
            except APIResponseError as error:
                assert error.status == 404 and one["type"] == "synced_block"


def titles(found: dict[str, Any]) -> list[str]:
    """The titles of the pages in a list."""
    return [plain(one["properties"]) for one in found["results"] if one["object"] == "page"]


# Reading


def test_a_page_of_250_blocks_comes_in_three_pages(world: World, server: NotionServer, client: Client) -> None:
    page = world.create_page(None, "Long", [blocks.paragraph(f"line {at}") for at in range(250)])
    found = list(iterate_paginated_api(client.blocks.children.list, block_id=page))
    assert [plain(one["paragraph"]) for one in found] == [f"line {at}" for at in range(250)]
    assert server.counts["blocks.children"] == 3
    first = client.blocks.children.list(block_id=page, page_size=7)
    assert (len(first["results"]), first["has_more"], first["type"], first["block"]) == (7, True, "block", {})
    said = client.blocks.children.list(block_id=page, start_cursor=first["next_cursor"], page_size=100)
    assert plain(said["results"][0]) == "line 7"
    assert refusal(lambda: client.blocks.children.list(block_id=page, page_size=101)) == (400, "validation_error")
    assert refusal(lambda: client.blocks.children.list(block_id=page, start_cursor=UNKNOWN)) == (
        400,
        "validation_error",
    )


@pytest.mark.parametrize("version", [OLD, NEW])
def test_every_block_of_the_zoo_gives_its_text(world: World, connect: Connect, version: str) -> None:
    animals, client = zoo(world), connect(version)
    found = list(walk(client, animals.page))
    everything = plain(found)
    said = [line for lines in animals.texts.values() for line in lines]
    assert [line for line in said if line not in everything] == [] and len(said) == 70
    kinds = {one["type"] for one in found}
    assert len(kinds) == 36 and ("transcription" in kinds) == (version == OLD)
    assert "Never" not in everything and "Depth four" in everything and animals.escaped in everything
    for what, id_ in animals.unreadable.items():
        expected = (404, "object_not_found") if "synced" in what else (400, "validation_error")
        assert refusal(lambda id_=id_: client.blocks.children.list(block_id=id_)) == expected
    with pytest.raises(APIResponseError, match="Block type ai_block is not supported via the API"):
        client.blocks.retrieve(block_id=animals.unreadable["ai_block"])


def test_the_zoo_as_markdown(world: World, client: Client) -> None:
    animals = zoo(world)
    found = client.pages.retrieve_markdown(page_id=animals.page)
    unescaped = re.sub(r"\\([^\w\s])", r"\1", found["markdown"])
    hidden = [line for kind in animals.only_blocks for line in animals.texts[kind]]
    said = [line for kind, lines in animals.texts.items() if kind not in animals.only_blocks for line in lines]
    assert [line for line in said if line not in unescaped and line not in found["markdown"]] == []
    assert [line for line in hidden if line in unescaped] == [] and len(hidden) == 6
    assert found["object"] == "page_markdown" and found["id"] == animals.page
    lost = animals.unreadable["synced_block of an unshared page"]
    assert found["truncated"] is True and found["unknown_block_ids"] == [lost]
    assert re.findall(r'<unknown url="https://[^"]+" alt="(\w+)"/>', found["markdown"]) == [
        *("template", "breadcrumb", "bookmark", "embed", "link_preview"),
        *("form", "button", "ai_block", "synced_block"),
    ]
    assert "Transcript of the meeting" not in found["markdown"]
    more = client.pages.retrieve_markdown(page_id=animals.page, include_transcript="true")
    assert "\t\tTranscript of the meeting" in more["markdown"]


def test_long_markdown_is_cut_and_the_rest_is_to_be_asked_for(world: World, client: Client) -> None:
    branch = blocks.toggle("Branch", [blocks.paragraph("Leaf")])
    page = world.create_page(None, "Long", [blocks.paragraph("One"), blocks.paragraph("Two"), branch])
    child = world.create_page(page, "Secret", [blocks.paragraph("Hidden")])
    world.unshare(child)
    world.markdown_limit = 2
    found = client.pages.retrieve_markdown(page_id=page)
    assert found["markdown"].splitlines()[:2] == ["One", "Two"] and found["truncated"] is True
    assert found["unknown_block_ids"] == [branch.id, child]
    rest = client.pages.retrieve_markdown(page_id=branch.id)
    assert "Leaf" in rest["markdown"] and rest["truncated"] is False and rest["unknown_block_ids"] == []
    assert refusal(lambda: client.pages.retrieve_markdown(page_id=child)) == (404, "object_not_found")
    world.markdown_on = False
    assert refusal(lambda: client.pages.retrieve_markdown(page_id=page)) == (400, "invalid_request_url")


def test_properties_of_every_type(world: World, client: Client) -> None:
    animals = zoo(world)
    page = client.pages.retrieve(page_id=animals.row)
    kinds = {one["type"] for one in page["properties"].values()}
    assert len(kinds) == 24 and plain(page["properties"]["Name"]) == "A row with everything"
    for name in ("Friends", "Who"):
        assert len(page["properties"][name][page["properties"][name]["type"]]) == 25
    assert page["properties"]["Friends"]["has_more"] is True
    assert "note 24" in plain(page["properties"]["Notes"]) and "note 26" not in plain(page["properties"]["Notes"])

    def item(name: str, **paging: Any) -> Any:
        return client.pages.properties.retrieve(
            page_id=animals.row, property_id=page["properties"][name]["id"], **paging
        )

    first = item("Friends", page_size=20)
    second = item("Friends", page_size=20, start_cursor=first["next_cursor"])
    assert [one["relation"]["id"] for one in first["results"] + second["results"]] == animals.friends
    assert (first["type"], first["property_item"]["type"], second["has_more"]) == ("property_item", "relation", False)
    assert len(item("Who")["results"]) == 27 and "Guest 29" in plain(item("Notes"))
    count = item("Count")
    assert (count["object"], count["type"], count["number"]) == ("property_item", "number", 42.5)
    assert [plain(one["title"]) for one in item("Gathered")["results"]] == ["Rolled 0", "Rolled 1", "Rolled 2"]
    some = client.pages.retrieve(page_id=animals.row, filter_properties=[page["properties"]["Count"]["id"]])
    assert list(some["properties"]) == ["Count"]
    assert animals.properties["Tags"] == ["Tag one", "Tag two"] and animals.properties["Number"] == ["ZOO-12"]


def test_versions_differ_in_their_names(world: World, server: NotionServer, connect: Connect) -> None:
    old, new = connect(OLD), connect(NEW)
    page = world.create_page(None, "A page", [blocks.paragraph("text")])
    database, source = world.create_database(None, "A database")
    for read in (
        lambda client: client.pages.retrieve(page_id=page),
        lambda client: client.blocks.retrieve(block_id=page),
        lambda client: client.blocks.children.list(block_id=page)["results"][0],
        lambda client: client.databases.retrieve(database_id=database),
        lambda client: client.data_sources.retrieve(data_source_id=source),
    ):
        before, after = read(old), read(new)
        assert before["archived"] is False and "archived" not in after and after["in_trash"] is False
    assert new.databases.retrieve(database_id=database)["data_sources"] == [{"id": source, "name": "A database"}]
    assert refusal(connect("2022-06-28").users.me) == (400, "notionhq_client_response_error")
    assert new.users.me()["type"] == "bot"
    assert new.users.retrieve(user_id=world.user_id)["name"] == "Grace Hopper"


def test_requests_that_are_refused(world: World, server: NotionServer, connect: Connect, web: httpx.Client) -> None:
    client, page = connect(), world.create_page(None, "A page")
    database, source = world.create_database(None, "A database")
    assert refusal(connect(auth="wrong").users.me) == (401, "unauthorized")
    missing = (404, "object_not_found")
    assert refusal(lambda: client.pages.retrieve(page_id=UNKNOWN)) == missing
    assert refusal(lambda: client.pages.retrieve(page_id=database)) == missing
    assert refusal(lambda: client.databases.retrieve(database_id=source)) == missing
    assert refusal(lambda: client.data_sources.query(data_source_id=database)) == missing
    assert refusal(lambda: client.blocks.retrieve(block_id=source)) == missing
    assert refusal(lambda: client.pages.retrieve(page_id="nonsense")) == (400, "validation_error")
    assert refusal(lambda: client.pages.update(page_id=page, in_trash=True)) == (400, "invalid_request_url")
    assert client.pages.retrieve(page_id=page.replace("-", ""))["id"] == page
    wrong = {"property": "object", "value": "database"}
    assert refusal(lambda: client.search(filter=wrong)) == (400, "validation_error")
    headers = {"Authorization": f"Bearer {server.token}"}
    answer = web.get(f"{server.base_url}/v1/users/me", headers=headers)
    assert answer.status_code == 400 and answer.json()["code"] == "missing_version"
    assert answer.json()["message"].endswith("Notion-Version header should be defined, instead was `undefined`.")
    answer = web.post(f"{server.base_url}/v1/search", headers=headers | {"Notion-Version": NEW}, content=b'{"a":')
    assert answer.json() == {
        "object": "error",
        "status": 400,
        "code": "invalid_json",
        "message": "Error parsing JSON body.",
        "request_id": answer.headers["x-notion-request-id"],
    }


def test_files_have_an_address_for_an_hour(world: World, client: Client, web: httpx.Client) -> None:
    page = world.create_page(None, "Files")
    world.add_file(page, "a b.txt", b"content of the file", caption="A caption")

    def address() -> str:
        return client.blocks.children.list(block_id=page)["results"][0]["file"]["file"]["url"]

    first, second = address(), address()
    shown = client.blocks.children.list(block_id=page)["results"][0]["file"]
    assert first != second and shown["name"] == "a b.txt" and plain(shown["caption"]) == "A caption"
    assert shown["file"]["expiry_time"] == "2026-09-01T09:00:07.000Z"
    world.manual.advance(3599)
    assert web.get(first).content == b"content of the file"
    assert web.get(first.replace("Signature=", "Signature=0")).status_code == 403
    world.manual.advance(2)
    assert web.get(first).status_code == 403 and "AccessDenied" in web.get(first).text
    assert web.get(address()).status_code == 200


# Finding


def test_search_lags_and_leaves_out(world: World, client: Client) -> None:
    world.index_lag = 300
    first, second = world.create_page(None, "First plan"), world.create_page(None, "Second plan")
    _, source = world.create_database(first, "Rows")
    assert client.search()["results"] == []
    world.manual.advance(300)
    assert sorted(titles(client.search())) == ["First plan", "Second plan"]
    assert {one["object"] for one in client.search()["results"]} == {"page", "data_source"}
    only = client.search(filter={"property": "object", "value": "data_source"})
    assert [one["id"] for one in only["results"]] == [source]
    world.rename(first, "First draft")
    assert len(client.search(query="plan")["results"]) == 2 and titles(client.search(query="draft")) == []
    world.manual.advance(300)
    assert titles(client.search(query="draft")) == ["First draft"]
    world.edit(second, markdown="more")
    assert titles(client.search())[0] == "First draft"
    world.manual.advance(300)
    assert titles(client.search())[0] == "Second plan"
    rising = {"timestamp": "last_edited_time", "direction": "ascending"}
    assert titles(client.search(sort=rising))[-1] == "Second plan"
    world.unsearchable.add(first)
    assert titles(client.search()) == ["Second plan"]
    world.unsearchable.clear()
    world.trash(first)
    assert titles(client.search()) == ["Second plan"]
    world.restore(first)
    world.unshare(second)
    assert titles(client.search()) == ["First draft"]


@pytest.mark.parametrize(("paging", "found"), [("keyset", 12), ("offset", 11)])
def test_an_edit_between_two_pages_of_a_list(world: World, client: Client, paging: str, found: int) -> None:
    world.paging = paging
    pages = []
    for at in range(12):
        world.manual.advance(60)
        pages.append(world.create_page(None, f"Page {at}"))
    rising: dict[str, Any] = {"sort": {"timestamp": "last_edited_time", "direction": "ascending"}, "page_size": 5}
    first = client.search(**rising)
    world.manual.advance(60)
    world.edit(pages[0], markdown="moves to the end")
    second = client.search(**rising, start_cursor=first["next_cursor"])
    third = client.search(**rising, start_cursor=second["next_cursor"])
    ids = {one["id"] for one in first["results"] + second["results"] + third["results"]}
    assert len(ids) == found and third["has_more"] is False
    assert refusal(lambda: client.search(start_cursor=first["next_cursor"])) == (400, "validation_error")


def test_queries_by_time(world: World, client: Client) -> None:
    _, source = world.create_database(None, "Rows", {"Count": "number"})
    rows = []
    for at in range(5):
        rows.append(world.create_page(source, f"Row {at}", properties={"Count": ("number", at)}))
        world.manual.advance(60)

    def query(**more: Any) -> Any:
        return client.data_sources.query(data_source_id=source, **more)

    def since(name: str, time: str) -> list[str]:
        rule = {"timestamp": "last_edited_time", "last_edited_time": {name: time}}
        return titles(query(filter=rule, sorts=[{"timestamp": "last_edited_time", "direction": "ascending"}]))

    page = client.pages.retrieve(page_id=rows[0])
    assert page["last_edited_time"] == "2026-09-01T08:00:00.000Z"  # it was made 7 seconds later
    assert page["parent"]["type"] == "data_source_id" and page["parent"]["data_source_id"] == source
    assert since("on_or_after", "2026-09-01T08:03:00.000Z") == ["Row 3", "Row 4"]
    assert since("on_or_after", "2026-09-01T08:03:01.000Z") == ["Row 4"]  # seconds are lost
    assert since("before", "2026-09-01T08:01:00Z") == ["Row 0"] and len(since("after", "2026-08-31")) == 5
    by_number = {"property": "Count", "number": {"equals": 3}}
    assert refusal(lambda: query(filter=by_number)) == (400, "validation_error")
    world.trash(rows[1])
    assert len(query()["results"]) == 4 and titles(query(in_trash=True)) == ["Row 1"]
    world.query_limit = 3
    first = query(page_size=2)
    last = query(page_size=2, start_cursor=first["next_cursor"])
    assert len(first["results"] + last["results"]) == 3 and (last["has_more"], last["next_cursor"]) == (False, None)
    cut = {"type": "incomplete", "incomplete_reason": "query_result_limit_reached"}
    assert last["request_status"] == cut and "request_status" not in first


# The life of a page


def test_what_happens_to_pages(world: World, client: Client) -> None:
    root, other = world.create_page(None, "Root"), world.create_page(None, "Other")
    child = world.create_page(root, "Child", markdown="# Title\n- item\n1. one\n> said\n- [x] done\n```sh\nls\n```")
    kinds = [one["type"] for one in client.blocks.children.list(block_id=child)["results"]]
    assert kinds == ["heading_1", "bulleted_list_item", "numbered_list_item", "quote", "to_do", "code"]
    below = client.blocks.children.list(block_id=root)["results"]
    assert [(one["id"], one["child_page"]) for one in below] == [(child, {"title": "Child"})]
    assert world.truth()[child] == ("Child", ["Title", "item", "one", "said", "done", "ls"])
    world.manual.advance(120)
    world.edit(child, markdown="changed", silent=True)
    world.move(child, other)
    page = client.pages.retrieve(page_id=child)
    assert page["last_edited_time"] == page["created_time"] and page["parent"]["page_id"] == other
    assert client.blocks.children.list(block_id=root)["results"] == []
    assert world.truth()[child].texts == ["changed"]
    world.trash(other)
    assert client.pages.retrieve(page_id=child)["in_trash"] is True and set(world.truth()) == {root}
    world.restore(other)
    world.unshare(other)
    assert refusal(lambda: client.pages.retrieve(page_id=child)) == (404, "object_not_found")
    assert refusal(lambda: client.blocks.children.list(block_id=child)) == (404, "object_not_found")
    world.share(other)
    world.rename(child, "Renamed")
    assert client.pages.retrieve(page_id=child)["last_edited_time"] == "2026-09-01T08:02:00.000Z"
    assert world.truth()[child].title == "Renamed"
    toggle = blocks.toggle("Holds a page")
    world.edit(other, [toggle], append=True)
    inner = world.create_page(toggle.id, "Inner", [blocks.paragraph("inside")])
    assert [one["id"] for one in client.blocks.children.list(block_id=toggle.id)["results"]] == [inner]
    assert client.pages.retrieve(page_id=inner)["parent"] == {"type": "block_id", "block_id": toggle.id}
    assert world.truth()[other].texts == ["Holds a page"] and world.truth()[inner].texts == ["inside"]
    world.purge(other)
    world.purge(inner)
    assert set(world.truth()) == {root} and refusal(lambda: client.pages.retrieve(page_id=child))[0] == 404


# Misbehaviour


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("rate_limited", 429, "rate_limited"),
        ("overloaded", 529, "notionhq_client_response_error"),  # the client does not know service_overload
        ("internal", 500, "internal_server_error"),
        ("bad_gateway", 502, "notionhq_client_response_error"),
        ("unavailable", 503, "service_unavailable"),
        ("database_unavailable", 503, "notionhq_client_response_error"),
        ("gateway_timeout", 504, "gateway_timeout"),
        ("conflict", 409, "conflict_error"),
        ("unauthorized", 401, "unauthorized"),
        ("restricted", 403, "restricted_resource"),
        ("not_found", 404, "object_not_found"),
    ],
)
def test_errors_on_command(server: NotionServer, client: Client, kind: Any, status: int, code: str) -> None:
    server.faults.script(kind, on="search", skip=1)
    client.search()
    client.users.me()
    assert refusal(client.search) == (status, code)
    client.search()
    assert server.answers["search", 200] == 2 and server.answers["search", status] == 1


def test_what_errors_say(server: NotionServer, client: Client) -> None:
    server.faults.script(Fault("rate_limited", retry_after=130, reason="workspace_limit"))
    with pytest.raises(APIResponseError) as caught:
        client.users.me()
    assert caught.value.headers["Retry-After"] == "130"
    assert caught.value.additional_data == {"rate_limit_reason": "workspace_limit"}
    assert caught.value.request_id == caught.value.headers["x-notion-request-id"]
    server.faults.script(Fault("overloaded", retry_after=7))
    server.faults.script("bad_gateway")
    with pytest.raises(UnknownHTTPResponseError) as overloaded:
        client.users.me()
    assert overloaded.value.headers["Retry-After"] == "7" and '"code": "service_overload"' in overloaded.value.body
    with pytest.raises(UnknownHTTPResponseError) as gateway:
        client.search()
    assert "<html>" in gateway.value.body


def test_connections_break(server: NotionServer, connect: Connect) -> None:
    client = connect()
    for kind, error in (
        ("cut", httpx.RemoteProtocolError),
        ("dropped", httpx.RemoteProtocolError),
        ("cut_json", json.JSONDecodeError),
        ("html", json.JSONDecodeError),
    ):
        server.faults.script(kind, on="users.me")  # type: ignore[arg-type]
        with pytest.raises(error):
            client.users.me()
        assert client.users.me()["object"] == "user"
    # The server may come to it long after the client has gone, so what follows is another request.
    server.faults.script("slow", on="users.me")
    with pytest.raises(RequestTimeoutError):
        connect(timeout_ms=50).users.me()
    server.release()
    server.faults.script(Fault("slow", seconds=0.01), on="search")
    assert client.search()["object"] == "list"


def test_a_cursor_that_repeats_and_a_query_that_is_not_complete(
    world: World, server: NotionServer, client: Client
) -> None:
    _, source = world.create_database(None, "Rows")
    for at in range(5):
        world.create_page(source, f"Row {at}")
    server.faults.script("repeat_cursor", on="data_sources.query", times=math.inf, skip=1)
    first = client.data_sources.query(data_source_id=source, page_size=2)
    cursor = first["next_cursor"]
    for _ in range(3):
        again = client.data_sources.query(data_source_id=source, page_size=2, start_cursor=cursor)
        assert again["next_cursor"] == cursor and again["has_more"] is True
    server.faults.clear()
    server.faults.script("incomplete")
    cut = client.data_sources.query(data_source_id=source, page_size=2)
    assert cut["request_status"]["type"] == "incomplete" and cut["has_more"] is False and len(cut["results"]) == 2


def test_outages_budgets_and_chance(world: World, server: NotionServer, client: Client) -> None:
    start = world.clock() + timedelta(minutes=10)
    server.faults.outage(start, start + timedelta(minutes=5), "internal")
    assert client.users.me()["object"] == "user"
    world.manual.advance(600)
    assert refusal(client.users.me) == (500, "internal_server_error") == refusal(client.search)
    world.manual.advance(300)
    assert client.users.me()["object"] == "user"

    world.manual.advance(60)  # 7 seconds into a minute
    server.faults.budget(3)
    for _ in range(3):
        client.users.me()
    with pytest.raises(APIResponseError) as caught:
        client.users.me()
    assert (caught.value.status, caught.value.headers["Retry-After"]) == (429, "53")
    world.manual.advance(52)
    assert refusal(client.users.me) == (429, "rate_limited")
    world.manual.advance(1)
    client.users.me()
    server.faults.budget(None)

    server.faults.chance(0.3, ["internal", "unavailable"], seed=1, on="search")
    before = server.counts["search"]
    statuses = []
    for _ in range(100):
        try:
            client.search()
            statuses.append(200)
        except APIResponseError as error:
            statuses.append(error.status)
    assert set(statuses) == {200, 500, 503} and 15 < 100 - statuses.count(200) < 45
    assert server.counts["search"] == before + 100 and client.users.me()


def test_it_counts_and_forgets(world: World, server: NotionServer, client: Client) -> None:
    page = world.create_page(None, "A page")
    for _ in range(3):
        client.pages.retrieve(page_id=page)
    server.faults.script("dropped")
    with pytest.raises(httpx.RemoteProtocolError):
        client.users.me()
    assert server.counts == {"pages": 3, "users.me": 1}
    assert server.answers == {("pages", 200): 3, ("users.me", 0): 1}
    last = server.requests_log[-2]
    assert (last.method, last.path, last.endpoint, last.at) == ("GET", f"/v1/pages/{page}", "pages", world.clock())
    assert server.bytes_sent > 1_500 and server.requests_log.maxlen == 5_000


def test_many_clients_while_the_world_changes(world: World, server: NotionServer, connect: Connect) -> None:
    pages = [world.create_page(None, f"Page {at}", [blocks.paragraph(f"text {at}")]) for at in range(20)]

    def read(client: Client) -> int:
        return sum(len(client.blocks.children.list(block_id=page)["results"]) for page in pages)

    def write(_: int) -> int:
        for page in pages:
            world.edit(page, [blocks.paragraph("new")])
            world.truth()
        return 20

    with ThreadPoolExecutor(6) as pool:
        reading = [pool.submit(read, connect()) for _ in range(4)]
        writing = [pool.submit(write, at) for at in range(2)]
        assert [one.result() for one in [*reading, *writing]] == [20] * 6
    assert all(said.texts == ["new"] for said in world.truth().values())


def test_it_comes_back_on_the_same_port(world: World) -> None:
    server = NotionServer(world)
    with server:
        port = server.port
    with httpx.Client(trust_env=False) as plain_client, pytest.raises(httpx.ConnectError):
        plain_client.get(server.base_url)
    with server, Client(auth=server.token, base_url=server.base_url, **QUIET) as client:
        assert server.port == port and client.users.me()["bot"]["workspace_id"] == world.workspace_id


# Webhooks


class Receiver:
    """Keeps what came, and answers with `status`."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.status = 200

    def __call__(self, call: Call) -> Answer:
        self.calls.append(call)
        return Answer(self.status)

    def events(self) -> list[dict[str, Any]]:
        """Without the handshake."""
        return [json.loads(call.body) for call in self.calls[1:]]


@pytest.fixture
def receiver() -> Iterator[tuple[Receiver, str]]:
    heard = Receiver()
    with web_server(heard) as listening:
        yield heard, f"http://127.0.0.1:{listening.port}/notion"


def test_events_are_signed_and_gathered(world: World, server: NotionServer, receiver: tuple[Receiver, str]) -> None:
    heard, url = receiver
    before = world.create_page(None, "Before")
    subscription = server.webhook(url, "secret_token")
    assert json.loads(heard.calls[0].body) == {"verification_token": "secret_token"}
    assert "x-notion-signature" not in heard.calls[0].headers
    _, source = world.create_database(None, "Rows", {"Count": "number"})
    row = world.create_page(source, "Row")
    for at in range(3):
        world.manual.advance(10)
        world.edit(before, [blocks.paragraph(f"line {at}")], append=True)
    world.set_properties(row, {"Count": ("number", 1)})
    subscription.deliver()
    assert [event["type"] for event in heard.events()] == ["data_source.created", "page.created"]
    world.manual.advance(60)
    subscription.deliver()
    world.move(row, before)
    world.trash(before)
    world.restore(before)
    subscription.deliver()
    assert [event["type"] for event in heard.events()[2:]] == [
        *("data_source.content_updated", "page.content_updated", "page.properties_updated"),
        *("page.moved", "page.deleted", "page.undeleted"),
    ]
    for call in heard.calls[1:]:
        assert call.headers["x-notion-signature"] == signature("secret_token", call.body)
    changed = heard.events()[3]
    assert changed["entity"] == {"id": before, "type": "page"} and changed["attempt_number"] == 1
    assert len(changed["data"]["updated_blocks"]) == 3 and changed["timestamp"] == "2026-09-01T08:00:37.000Z"
    assert changed["data"]["parent"] == {"id": world.workspace_id, "type": "space"}
    assert heard.events()[4]["data"]["updated_properties"][0].startswith("%3A")
    assert heard.events()[1]["data"]["parent"]["data_source_id"] == source
    world.unshare(before)
    world.edit(before, markdown="unseen")
    assert subscription.deliver(everything=True) == [] and subscription.pending() == 0


def test_events_come_twice_late_and_in_any_order(
    world: World, server: NotionServer, receiver: tuple[Receiver, str]
) -> None:
    heard, url = receiver
    subscription = server.webhook(url, "token", shuffled=True, doubled=0.5, seed=3)
    made = [world.create_page(None, f"Page {at}") for at in range(20)]
    subscription.deliver()
    told = [event["entity"]["id"] for event in heard.events()]
    assert set(told) == set(made) and 20 < len(told) < 40 and list(dict.fromkeys(told)) != made
    assert len({event["id"] for event in heard.events()}) == 20
    heard.calls = heard.calls[:1]
    heard.status, subscription.doubled = 503, 0
    page = world.create_page(None, "Late")
    while subscription.pending():
        subscription.deliver(everything=True)
    assert [(event["entity"]["id"], event["attempt_number"]) for event in heard.events()] == [
        (page, attempt) for attempt in range(1, 9)
    ]
    assert len({event["id"] for event in heard.events()}) == 1
    silent = server.webhook(url, "token", lost=1.0)
    world.create_page(None, "Never told")
    assert silent.deliver(everything=True) == []


# A second opinion


@pytest.fixture(scope="module")
def backlot() -> Iterator[Backlot]:
    with backlot_server() as running:
        yield running


def differences(ours: Any, theirs: Any, where: str = "") -> set[str]:
    """Where two answers differ in keys or types; a null is like everything, lists are compared by their first item."""
    if ours is None or theirs is None:
        return set()
    if isinstance(ours, dict) and isinstance(theirs, dict):
        only = {f"{where}.{key} is ours alone" for key in ours.keys() - theirs.keys()}
        only |= {f"{where}.{key} is theirs alone" for key in theirs.keys() - ours.keys()}
        inner = (differences(ours[key], theirs[key], f"{where}.{key}") for key in ours.keys() & theirs.keys())
        return only.union(*inner)
    if isinstance(ours, list) and isinstance(theirs, list):
        return differences(ours[0], theirs[0], f"{where}[]") if ours and theirs else set()
    alike = type(ours) is type(theirs)
    return set() if alike else {f"{where} is {type(ours).__name__}, theirs {type(theirs).__name__}"}


@pytest.mark.timeout(400)  # the other one takes its time to begin
@pytest.mark.parametrize("version", [OLD, NEW])
def test_answers_look_like_those_of_another_fake(
    world: World, connect: Connect, backlot: Backlot, version: str
) -> None:
    page = world.create_page(
        None, "Home", [blocks.heading(1, "Title"), blocks.paragraph("text"), blocks.bullet("item")], icon="🛠"
    )
    database, source = world.create_database(None, "Rows", {"Points": "number", "Status": "select"})
    row_values = {"Points": ("number", 3), "Status": ("select", "Done")}
    row = world.create_page(source, "Row", properties=row_values)
    mine = connect(version)
    other = Client(auth=backlot.token, base_url=backlot.base_url, notion_version=version, **QUIET)
    found: dict[str, set[str]] = {}

    def compare(what: str, ours: Any, theirs: Any) -> None:
        found[what] = differences(ours, theirs)

    with other:
        pages = other.search(filter={"property": "object", "value": "page"})
        their_page = next(
            one["id"] for one in pages["results"] if one["parent"]["type"] == "workspace" and "Platform" in plain(one)
        )
        their_row = next(one for one in pages["results"] if one["parent"]["type"] == "data_source_id")
        their_source, their_database = (their_row["parent"][key] for key in ("data_source_id", "database_id"))
        compare("users/me", mine.users.me(), other.users.me())
        mine_found = mine.search(filter={"property": "object", "value": "page"}, page_size=1)
        their_found = other.search(filter={"property": "object", "value": "page"}, page_size=1)
        for listed in (mine_found, their_found):
            listed["results"] = []
        compare("search", mine_found, their_found)
        compare("pages", mine.pages.retrieve(page_id=page), other.pages.retrieve(page_id=their_page))
        ours, theirs = mine.pages.retrieve(page_id=row), other.pages.retrieve(page_id=their_row["id"])
        for answer, title in ((ours, "Name"), (theirs, "title")):
            shown = answer["properties"]
            answer["properties"] = {key: shown[key] for key in ("Points", "Status")} | {"a title": shown[title]}
        compare("rows", ours, theirs)
        compare("databases", mine.databases.retrieve(database_id=database), other.databases.retrieve(their_database))
        ours = mine.data_sources.retrieve(data_source_id=source)
        theirs = other.data_sources.retrieve(data_source_id=their_source)
        for answer in (ours, theirs):
            columns = answer["properties"].values()
            answer["properties"] = {"a title": next(one for one in columns if one["type"] == "title")}
        compare("data_sources", ours, theirs)
        ours, theirs = (
            one.data_sources.query(data_source_id=id_, page_size=1)
            for one, id_ in ((mine, source), (other, their_source))
        )
        assert ours["results"][0]["id"] == row and theirs["has_more"] is True
        for listed in (ours, theirs):
            listed["results"] = []
        compare("query", ours, theirs)
        compare("blocks", mine.blocks.retrieve(block_id=page), other.blocks.retrieve(block_id=their_page))
        ours, theirs = mine.blocks.children.list(block_id=page), other.blocks.children.list(block_id=their_page)
        compare("children", ours, theirs)
        for kind in ("heading_1", "paragraph", "bulleted_list_item"):
            pair = [next(one for one in said["results"] if one["type"] == kind) for said in (ours, theirs)]
            compare(kind, *pair)
        errors = []
        for one, id_ in ((mine, page), (other, their_page)):
            wrong = Client(auth="wrong", base_url=one.options.base_url, notion_version=version, **QUIET)
            with wrong:
                for call in (
                    lambda one=one: one.pages.retrieve(page_id=UNKNOWN),
                    lambda one=one: one.blocks.children.list(block_id=UNKNOWN),
                    lambda one=one: one.data_sources.query(data_source_id=UNKNOWN),
                    lambda one=one, id_=id_: one.blocks.children.list(block_id=id_, start_cursor="abc"),
                    lambda one=one: one.search(filter={"property": "object", "value": "database"}),
                    wrong.users.me,
                ):
                    with pytest.raises(HTTPResponseError) as caught:
                        call()
                    said = json.loads(caught.value.body)
                    errors.append((sorted(said), said["status"], said["code"]))
        assert errors[:6] == errors[6:]
    # Documented, and missing there: `archived` is gone in the newest version, headings are toggleable or not,
    # paragraphs have icons (in tabs). Theirs: `database_type`, which no document that we found has, and options
    # without an id. Found by this test: a database does not tell who made it.
    archived = set() if version == OLD else {".archived is theirs alone"}
    kind_of_database = {".database_type is theirs alone"}
    assert found == {
        "users/me": set(),
        "search": set(),
        "pages": archived,
        "rows": archived | {".properties.Status.select.id is ours alone"},
        "databases": archived | kind_of_database,
        "data_sources": archived | kind_of_database | {".properties.a title.description is ours alone"},
        "query": set(),
        "blocks": archived,
        "children": {f".results[]{one}" for one in archived | {".heading_1.is_toggleable is ours alone"}},
        "heading_1": archived | {".heading_1.is_toggleable is ours alone"},
        "paragraph": archived | {".paragraph.icon is ours alone"},
        "bulleted_list_item": archived,
    }
