"""What hostile or broken providers do to a sync: nothing that lasts, and nothing to the documents of others."""

from __future__ import annotations

import gzip
import itertools
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from psycopg import Connection
from pydantic import ValidationError

from pipelines.errors import PermanentError, RetryableError
from tests.fakes.notion import NotionServer, World
from tests.fakes.place import Place, PlaceConnector
from tests.fakes.sync_house import SyncHouse
from tests.fakes.web_server import Answer, Call, web_server
from worker.connectors.bucket import BucketConfig, open_bucket
from worker.connectors.config import SyncConfig
from worker.connectors.contract import Document, Gone, Incomplete, Item, Known, Surroundings
from worker.connectors.notion import NotionConfig, api, files
from worker.connectors.notion.connector import open_notion
from worker.connectors.notion.content import Media
from worker.connectors.notion.files import take_files, version_of
from worker.connectors.notion.markdown import read_markdown
from worker.connectors.web import (
    FeedConfig,
    PagesConfig,
    SitemapConfig,
    open_feed,
    open_pages,
    open_sitemap,
    robots,
    sitemaps,
)
from worker.connectors.web.client import Client
from worker.ledger import Ledger
from worker.settings import Settings
from worker.spool import Spool


@dataclass
class Web:
    """A site that answers what it is told to, and 404 for the rest."""

    settings: Settings
    base: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)

    def url(self, path: str) -> str:
        return self.base + path

    def asked(self, path: str) -> int:
        return self.calls[path]

    def answer(self, call: Call) -> Answer:
        self.calls[call.path] += 1
        return self.answers.get(call.path, Answer(404))

    def around(self) -> Surroundings:
        return Surroundings(self.settings, wait=lambda seconds: None)


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def house(dsn: str, database: Connection[Any], tmp_path: Path, place: Place) -> Iterator[SyncHouse]:
    settings = Settings(database_url=dsn, home=tmp_path / "home", delete_guard_minimum=4)
    config = SyncConfig(type="place", every=60)
    found = SyncHouse(settings, database, config, lambda _config, surroundings: PlaceConnector(place, surroundings))
    yield found
    found.close()


# --- documents of others -----------------------------------------------------------------------------------------


def upload(house: SyncHouse, database: Connection[Any], folder: Path, uri: str, text: str) -> None:
    spooled = Spool(folder / "home" / "spool", max_bytes=10**6).put(text.encode(), "a.txt")
    Ledger(database).record(uri, kind="upload", fingerprint="f", location=spooled.name, filename="a.txt")
    house.ingest()


@pytest.mark.parametrize("first", [True, False], ids=["new", "known"])
def test_a_page_does_not_take_the_place_of_an_upload(
    house: SyncHouse, place: Place, database: Connection[Any], tmp_path: Path, first: bool
) -> None:
    """It says that it is a document which came another way; that one stays, whatever becomes of the page."""
    upload(house, database, tmp_path, "place:handbook", "The true handbook.")
    place.put("evil", "A false handbook.")
    if not first:
        house.sync()
    place.put("evil", "A false handbook!", "2")
    place.moved["evil"] = "place:handbook"
    house.sync()
    assert house.index()["place:handbook"] == "The true handbook."
    place.drop("evil")
    house.sync(later=4000)
    house.sync(later=4000)
    assert house.index() == {"place:handbook": "The true handbook."}


def test_a_sync_does_not_rewrite_the_documents_of_another(
    dsn: str, database: Connection[Any], tmp_path: Path, place: Place
) -> None:
    """Whoever has an address under its own name keeps it, e.g. a page of Notion that a feed links to as well."""
    settings = Settings(database_url=dsn, home=tmp_path / "home")
    feed = Place(absence="nothing")

    def opener(config: SyncConfig, surroundings: Surroundings) -> PlaceConnector:
        return PlaceConnector(feed if config.type == "feed" else place, surroundings)

    one = SyncHouse(settings, database, SyncConfig(type="notion"), opener)
    other = SyncHouse(settings, database, SyncConfig(type="feed"), opener)
    other.syncer._syncs = {"feed": other.syncer._syncs["place"]}
    try:
        place.put("page", "What the page says.")
        feed.put("page", "Please log in.")
        one.sync()
        other.syncer.sync("feed")
        other.ingest()
        assert one.index() == {"place:page": "What the page says."}
        feed.drop("page")
        other.syncer.sync("feed")
        one.sync()
        assert one.index() == {"place:page": "What the page says."}
    finally:
        one.close()
        other.close()


def test_a_feed_does_not_rewrite_what_was_sent(
    dsn: str, database: Connection[Any], tmp_path: Path, place: Place
) -> None:
    """Its author chooses the addresses, also one that somebody sent us the text of."""
    settings = Settings(database_url=dsn, home=tmp_path / "home")
    config = SyncConfig(type="feed")
    house = SyncHouse(settings, database, config, lambda _config, surroundings: PlaceConnector(place, surroundings))
    try:
        upload(house, database, tmp_path, "place:page", "What was sent.")
        place.put("page", "Please log in.")
        house.sync()
        assert house.index() == {"place:page": "What was sent."}
    finally:
        house.close()


@pytest.mark.parametrize("said", [PermanentError("gone", "it is gone", ""), "unwanted", None])
def test_what_was_sent_does_not_fail_since_a_feed_links_to_it(
    dsn: str, database: Connection[Any], tmp_path: Path, place: Place, said: Any
) -> None:
    settings = Settings(database_url=dsn, home=tmp_path / "home")
    config = SyncConfig(type="feed")
    house = SyncHouse(settings, database, config, lambda _config, surroundings: PlaceConnector(place, surroundings))
    try:
        upload(house, database, tmp_path, "place:page", "What was sent.")
        place.at_once = False
        place.put("page", said)
        place.unwanted = {"page"} if said == "unwanted" else set()
        for _ in range(2):
            house.sync(later=100_000)
            assert house.states()["place:page"] == ("done", None)
        assert house.index() == {"place:page": "What was sent."}
    finally:
        house.close()


def test_a_site_that_sends_everybody_to_one_page_does_not_empty_the_index(house: SyncHouse, place: Place) -> None:
    """As one does that wants a login all of a sudden: each page seems to have moved to the same place."""
    pages = [f"{number:02}" for number in range(12)]
    for page in pages:
        place.put(page, f"All about {page}.")
    house.sync()
    for page in pages:
        place.put(page, "Please log in.", "2")
        place.moved[page] = "place:login"
    assert house.sync().counts["held"] == 8
    house.sync(later=100_000)
    assert {f"place:{page}" for page in pages[4:]} < house.index().keys()
    assert house.states()["place:11"] == ("done", "merged")
    house.sync(later=100_000, confirmed=True)
    assert house.index() == {"place:login": "Please log in."}


# --- the web -----------------------------------------------------------------------------------------------------


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    served = Web(Settings(home=tmp_path / "home", fetch_allow=("127.0.0.1",)))
    with web_server(served.answer) as server:
        served.base = f"http://127.0.0.1:{server.port}"
        yield served


def feed_of(link: str, more: bytes = b"", head: bytes = b"") -> bytes:
    return b"%s<rss version='2.0'><channel><item><link>%s</link>%s</item></channel></rss>" % (
        head,
        link.encode(),
        more,
    )


@pytest.mark.parametrize(
    "feed",
    [
        pytest.param(feed_of("http://x.org/", b"<guid>a&#xD800;</guid>"), id="half a character"),
        pytest.param(
            feed_of(
                "http://x.org/",
                b"<title>%s</title>" % (b"&a;" * 150),
                b'<!DOCTYPE rss [<!ENTITY a "%s">]>' % (b"x" * 10**6),
            ),
            id="entities",
        ),
        pytest.param(
            feed_of(
                "http://x.org/",
                b"<title>&a;</title>",
                b"<?xml version='1.0' encoding='utf-16'?><!DOCTYPE rss [<!ENTITY a \"xx\">]>",
            )
            .decode()
            .encode("utf-16"),
            id="entities in UTF-16",
        ),
    ],
)
def test_a_hostile_feed_does_not_keep_us_from_the_others(web: Web, feed: bytes) -> None:
    web.answers |= {"/bad": Answer(200, feed), "/good": Answer(200, feed_of(f"{web.base}/page"))}
    with open_feed(FeedConfig(type="feed", urls=(web.url("/bad"), web.url("/good")), delay=0), web.around()) as opened:
        found = list(opened.listing(full=True))
    assert [one.key for one in found if isinstance(one, Item)] == [web.url("/page")]
    assert [type(one) for one in found] == [Incomplete, Item]


@pytest.mark.parametrize("name", ["idna''..", "undefined''%ff", "utf-8''%ff", "none''x"])
def test_a_name_in_an_encoding_that_is_none_is_no_name(web: Web, tmp_path: Path, name: str) -> None:
    web.answers["/page.txt"] = Answer(
        200, b"Text.", {"Content-Disposition": f"attachment; filename*={name}", "Content-Type": "text/plain"}
    )
    with open_pages(PagesConfig(type="pages", urls=(web.url("/page.txt"),)), web.around()) as opened:
        found = opened.visit(web.url("/page.txt"), None, tmp_path)
    assert isinstance(found, Document)
    assert found.filename.endswith(".txt")


def test_a_body_packed_in_several_members_is_read_whole(web: Web, tmp_path: Path) -> None:
    """RFC 1952, 2.2: a gzip file is a series of members; what follows them and is none is padding."""
    body = gzip.compress(b"The first part. ") + gzip.compress(b"The second part.") + b"\0" * 100
    web.answers["/page.txt"] = Answer(200, body, {"Content-Encoding": "gzip", "Content-Type": "text/plain"})
    with open_pages(PagesConfig(type="pages", urls=(web.url("/page.txt"),)), web.around()) as opened:
        found = opened.visit(web.url("/page.txt"), None, tmp_path)
    assert isinstance(found, Document)
    assert isinstance(found.content, Path)
    assert found.content.read_bytes() == b"The first part. The second part."


def test_a_bomb_of_many_members_is_refused(web: Web, tmp_path: Path) -> None:
    small = gzip.compress(b"\0" * 10**6)
    web.settings = web.settings.model_copy(update={"max_bytes": 5 * 10**6})
    web.answers["/page.txt"] = Answer(200, small * 6, {"Content-Encoding": "gzip"})
    with (
        open_pages(PagesConfig(type="pages", urls=(web.url("/page.txt"),)), web.around()) as opened,
        pytest.raises(PermanentError, match="more than the 5,000,000 bytes"),
    ):
        opened.visit(web.url("/page.txt"), None, tmp_path)


def test_a_sitemap_packed_in_several_members_is_read_whole(web: Web) -> None:
    lines = [f"{web.base}/{number}\n".encode() for number in range(3)]
    web.answers["/sitemap.txt.gz"] = Answer(200, b"".join(map(gzip.compress, lines)))
    with open_sitemap(SitemapConfig(type="sitemap", urls=(web.url("/sitemap.txt.gz"),)), web.around()) as opened:
        assert [one.key for one in opened.listing(full=True) if isinstance(one, Item)] == [
            web.url(f"/{number}") for number in range(3)
        ]


def index_of(urls: Iterable[str], kind: str = "sitemap") -> Answer:
    root = "sitemapindex" if kind == "sitemap" else "urlset"
    named = "".join(f"<{kind}><loc>{url}</loc></{kind}>" for url in urls)
    return Answer(200, f"<{root}>{named}</{root}>".encode())


def test_sitemaps_without_end_come_to_one(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is still to be read is held in memory, so there is a most of it; the rest is told of once."""
    monkeypatch.setattr(sitemaps, "MOST_FILES", 20)
    web.answers["/sitemap.xml"] = index_of(web.url(f"/index-{number}.xml") for number in range(10))
    for number in range(10):
        web.answers[f"/index-{number}.xml"] = index_of(web.url(f"/{number}-{child}.xml") for child in range(50))
    most = 0
    with open_sitemap(SitemapConfig(type="sitemap", urls=(web.url("/sitemap.xml"),), delay=0), web.around()) as opened:
        assert isinstance(opened, sitemaps.Sitemaps)
        real = opened._add

        def add(child: Any, parent: Any, pending: Any) -> str:
            nonlocal most
            said = real(child, parent, pending)
            most = max(most, len(pending))
            return said

        monkeypatch.setattr(opened, "_add", add)
        gaps = [one.reason for one in opened.listing(full=True) if isinstance(one, Incomplete)]
    assert most <= 20
    assert sum("more than 20 sitemaps" in gap for gap in gaps) == 1
    assert len(gaps) <= 21


def test_pages_without_end_come_to_one(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sitemaps, "MOST_PAGES", 25)
    web.answers["/sitemap.xml"] = index_of(web.url(f"/{number}.xml") for number in range(10))
    for number in range(10):
        web.answers[f"/{number}.xml"] = index_of((web.url(f"/{number}/{page}") for page in range(10)), "url")
    with open_sitemap(SitemapConfig(type="sitemap", urls=(web.url("/sitemap.xml"),), delay=0), web.around()) as opened:
        found = list(opened.listing(full=True))
    assert sum(isinstance(one, Item) for one in found) == 25
    assert [one.reason for one in found if isinstance(one, Incomplete)] == ["there are more than 25 pages"]
    assert web.asked("/3.xml") == 0, "nothing is fetched that does not count"


def test_rules_of_many_hosts_are_not_all_kept(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """A feed may link to a thousand hosts of somebody who has all names below his own."""
    text = "User-agent: *\nDisallow: /private\n" + "# noise\n" * 1000
    web.answers["/robots.txt"] = Answer(200, text.encode())
    monkeypatch.setattr(robots, "MOST_KEPT_BYTES", 10 * len(text))
    settings = web.settings.model_copy(update={"fetch_allow": ("127.0.0.1", *(f"h{n}.test" for n in range(30)))})
    around = Surroundings(settings)
    client = Client(around, agent="gristmill/1", delay=0, resolve=lambda host, port: ["127.0.0.1"])
    rules = robots.Robots(client, around, "gristmill/1")
    port = web.base.rpartition(":")[2]
    for number in range(30):
        assert not rules.allow(httpx.URL(f"http://h{number}.test:{port}/private"))
        assert rules.allow(httpx.URL(f"http://h{number}.test:{port}/page"))
    assert web.asked("/robots.txt") == 30
    assert len(rules._rules) <= 10


def page(more: str = "") -> Answer:
    return Answer(200, f"<html><head><title>A</title>{more}</head><body>Text.</body></html>".encode())


@pytest.mark.parametrize("status", [301, 302])
def test_what_the_settings_exclude_is_not_taken_under_another_address(web: Web, tmp_path: Path, status: int) -> None:
    web.answers |= {"/a": Answer(status, headers={"Location": "/private/b"}), "/private/b": page()}
    config = PagesConfig(type="pages", urls=(web.url("/a"),), exclude=("/private/*",), delay=0)
    with open_pages(config, web.around()) as opened:
        found = opened.visit(web.url("/a"), None, tmp_path)
    assert isinstance(found, Gone)
    assert (found.unwanted, found.reason) == (True, "the settings exclude it")


@pytest.mark.parametrize("option", [{"exclude": ("/private/*",)}, {"include": ("/a",)}])
def test_a_page_is_not_what_the_settings_exclude(web: Web, tmp_path: Path, option: dict[str, Any]) -> None:
    web.answers["/a"] = page(f"<link rel=canonical href='{web.base}/private/b'>")
    with open_pages(PagesConfig(type="pages", urls=(web.url("/a"),), delay=0, **option), web.around()) as opened:
        found = opened.visit(web.url("/a"), None, tmp_path)
    assert isinstance(found, Document)
    assert found.uri == web.url("/a")


# --- Notion ------------------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def notion(world: World, tmp_path: Path) -> Iterator[tuple[NotionServer, Surroundings]]:
    settings = Settings(home=tmp_path / "home", fetch_allow=("127.0.0.1",), max_bytes=100_000)
    with NotionServer(world, token="ntn_fake") as server:
        yield server, Surroundings(settings, world.manual, world.manual.advance)


def opened_notion(server: NotionServer, around: Surroundings, transport: httpx.BaseTransport | None = None) -> Any:
    config = NotionConfig(type="notion", base_url=server.base_url, requests_per_second=1000)
    return open_notion(config, around, token="ntn_fake", transport=transport)


@pytest.mark.parametrize("body", ["<html>Access denied</html>", '{"error": "blocked by policy"}'])
def test_a_proxy_that_forbids_is_not_a_page_that_is_gone(
    world: World, notion: tuple[NotionServer, Surroundings], tmp_path: Path, body: str
) -> None:
    page = world.create_page(None, "Plan", markdown="Text.").replace("-", "")
    forbidden = httpx.MockTransport(lambda request: httpx.Response(403, text=body))
    with opened_notion(*notion, forbidden) as opened, pytest.raises(RetryableError, match="403"):
        opened.visit(page, Known(page, f"https://www.notion.so/{page}", "1"), tmp_path)


@pytest.mark.parametrize(
    "line", ["".join("`" * n + "a" for n in range(1, 250)), "<mention-page>a" * 20_000, "$`a" * 30_000]
)
def test_no_line_of_a_page_takes_minutes_to_read(line: str) -> None:
    began = time.process_time()
    read_markdown(line)
    assert time.process_time() - began < 10


def test_a_file_of_a_very_long_name_has_a_short_uri(tmp_path: Path) -> None:
    """Each letter of it takes six characters there, and a row of the ledger is found by its uri."""
    place = "Files" * 20
    media = [
        Media("file", f"https://files.example.org/{number}", name="ä" * 500 + f"{number}.txt", hosted=True, place=place)
        for number in range(2)
    ]
    known = {files._key(one): version_of(one) for one in media}
    uri = "https://www.notion.so/" + "0" * 32
    nobody: Any = None
    found = take_files(nobody, Settings(home=tmp_path), {}, uri, media, known, tmp_path)
    assert found.versions == known
    assert len({one.uri for one in found.enclosures}) == 2
    assert all(len(one.uri) < 200 for one in found.enclosures)


@pytest.mark.parametrize("host", ["169.254.169.254", "127.0.0.1:8080", "localhost", "[::1]"])
def test_a_file_that_leads_inside_is_not_fetched_and_its_signature_told_to_nobody(tmp_path: Path, host: str) -> None:
    nobody: Any = None
    media = [Media("file", f"http://{host}/a.pdf?X-Amz-Signature=secret", "b" * 32, hosted=True)]
    found = take_files(nobody, Settings(home=tmp_path), {}, "https://www.notion.so/a", media, {}, tmp_path)
    assert not found.enclosures
    assert len(found.unread) == 1
    assert "public internet" in found.unread[0]
    assert "secret" not in found.unread[0]


def test_a_page_whose_place_nobody_tells_is_not_one_outside_of_the_roots(
    notion: tuple[NotionServer, Surroundings], tmp_path: Path
) -> None:
    """Blocks of some types are refused by the API; a page below one may well lie below a root."""
    key, block, root = (digit * 32 for digit in "abc")

    def answer(request: httpx.Request) -> httpx.Response:
        if "/blocks/" in request.url.path:
            return httpx.Response(400, json={"code": "validation_error", "message": "Block type is not supported."})
        return httpx.Response(200, json={"id": key, "parent": {"type": "block_id", "block_id": block}})

    server, around = notion
    config = NotionConfig(type="notion", base_url=server.base_url, requests_per_second=1000, roots=(root,))
    with (
        open_notion(config, around, token="ntn_fake", transport=httpx.MockTransport(answer)) as opened,
        pytest.raises(PermanentError, match="does not tell where"),
    ):
        opened.visit(key, Known(key, f"https://www.notion.so/{key}", "1"), tmp_path)


def test_a_list_of_blocks_that_never_ends_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MOST_LISTED", 20)
    numbers = itertools.count()

    def fetch(cursor: dict[str, Any]) -> dict[str, Any]:
        return {"results": [{"id": next(numbers)}], "has_more": True, "next_cursor": str(next(numbers))}

    with pytest.raises(PermanentError, match="does not end"):
        list(api._all(fetch, "the list of blocks"))
    assert next(numbers) == 40


# --- buckets -----------------------------------------------------------------------------------------------------


def test_a_push_leads_nowhere_outside_of_the_place(tmp_path: Path) -> None:
    """`..` is a name like any other in S3; in other stores it may lead out."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "a.txt").write_text("a")
    (tmp_path / "secret.txt").write_text("secret")
    settings = Settings(home=tmp_path / "home")
    config = BucketConfig(type="bucket", url=f"local://{tmp_path}/inside")
    with open_bucket(config, Surroundings(settings)) as opened:
        assert [one.key for one in opened.listing(full=True) if isinstance(one, Item)] == ["a.txt"]
        for key in ("../secret.txt", "x/../../secret.txt"):
            found = opened.visit(key, None, tmp_path / "inside")
            assert isinstance(found, Gone)


@pytest.mark.parametrize("url", ["ftp://me:hidden@example.org/files", "sftp://:hidden@example.org"])
def test_no_password_gets_into_the_uris_of_documents(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        BucketConfig(type="bucket", url=url)
    assert "password" in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert BucketConfig(type="bucket", url="abfs://container@account.dfs.core.windows.net/a").url


def test_no_password_of_an_endpoint_gets_into_errors() -> None:
    with pytest.raises(ValidationError) as caught:
        BucketConfig(type="bucket", url="s3://a", endpoint_url="https://me:hidden@example.org")
    assert "hidden" not in str(caught.value)


def test_a_proxy_that_knows_no_such_page_is_not_an_object_that_is_gone(tmp_path: Path) -> None:
    """A store says that there is no such key in a document of its own."""
    said = {
        "/bucket/gone": b"<Error><Code>NoSuchKey</Code><Message>no</Message></Error>",
        "/bucket/a": b"<html>no</html>",
    }
    with web_server(lambda call: Answer(404, said[call.path.partition("?")[0]])) as server:
        config = BucketConfig(
            type="bucket",
            url="s3://bucket",
            endpoint_url=f"http://127.0.0.1:{server.port}",
            anonymous=True,
            region="eu",
        )
        with open_bucket(config, Surroundings(Settings(home=tmp_path))) as opened:
            assert isinstance(opened.visit("gone", None, tmp_path), Gone)
            with pytest.raises(RetryableError, match="404"):
                opened.visit("a", None, tmp_path)


def test_a_listing_that_goes_round_in_circles_ends(tmp_path: Path) -> None:
    def answer(call: Call) -> Answer:
        following = "one" if "continuation-token=two" in call.path else "two"
        page = "<Contents><Key>a.txt</Key><Size>1</Size><ETag>e</ETag></Contents><IsTruncated>true</IsTruncated>"
        token = f"<NextContinuationToken>{following}</NextContinuationToken>"
        return Answer(200, f"<ListBucketResult>{page}{token}</ListBucketResult>".encode())

    with web_server(answer) as server:
        endpoint = f"http://127.0.0.1:{server.port}"
        config = BucketConfig(type="bucket", url="s3://bucket", endpoint_url=endpoint, anonymous=True, region="eu")
        with open_bucket(config, Surroundings(Settings(home=tmp_path))) as opened:
            listing = opened.listing(full=True)
            with pytest.raises(RetryableError, match="goes on, but not where"):
                list(itertools.islice(listing, 20))
