"""Visits to a site on loopback: what each answer becomes, what is asked again and what is left alone."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import PermanentError, RetryableError
from pipelines.extract.attachments import Attachments
from pipelines.extract.job import Job, no_progress
from pipelines.extract.registry import run_extractor
from pipelines.extract.rules import ExtractRules
from pipelines.sniff import sniff
from pipelines.types import Extracted
from tests.fakes.site import Site, site
from tests.fakes.web_server import Answer, Call, Trap, trap, web_server
from worker.connectors.contract import Document, Gone, Incomplete, Item, Known, Surroundings, Unchanged, Visit
from worker.connectors.web import (
    FeedConfig,
    PagesConfig,
    SitemapConfig,
    WebConnector,
    content,
    open_feed,
    open_pages,
    open_sitemap,
)
from worker.settings import Settings

NOW = datetime.fromisoformat("2026-01-01T12:00:00+00:00")


READ_APART = content.extract


def read_here(path: Path, *, name: str, rules: ExtractRules) -> Extracted:
    """As `extract`, in this process: the tests are many and a process takes its time."""
    return run_extractor(
        Job(path, sniff(path, name), rules, no_progress, attachments=Attachments(None, rules.max_bytes))
    )


@pytest.fixture(autouse=True)
def _read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "extract", read_here)


class Time:
    """A clock that goes on only when somebody waits."""

    def __init__(self) -> None:
        self.now = NOW
        self.waits: list[float] = []

    def clock(self) -> datetime:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += timedelta(seconds=seconds)


class Run:
    """Visits of one run after another, remembered as an engine would."""

    def __init__(self, settings: Settings, folder: Path, **options: Any) -> None:
        self.time = Time()
        self.known: dict[str, Known] = {}
        self.cursor: Mapping[str, Any] = {}
        self.connector: WebConnector
        self._settings = settings
        self._folder = folder
        self._options = options
        self.again()

    def again(self) -> None:
        """The next run."""
        around = Surroundings(
            self._settings, self.time.clock, self.time.wait, self.cursor, lambda: iter(list(self.known.values()))
        )
        kind = self._options["type"]
        options = {"delay": 0, **self._options}
        if kind == "sitemap":
            self.connector = open_sitemap(SitemapConfig(**options), around)
        elif kind == "feed":
            self.connector = open_feed(FeedConfig(**options), around)
        else:
            self.connector = open_pages(PagesConfig(**options), around)

    def visit(self, key: str) -> Visit:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        known = self.known.get(key)
        found = self.connector.visit(key, known, folder)
        if isinstance(found, Document):
            self.known[key] = Known(key, found.uri, found.version, found.state)
        elif isinstance(found, Unchanged):
            assert known is not None
            self.known[key] = replace(known, version=found.version, state=found.state, missing=False)
        elif known is not None:
            self.known[key] = replace(known, missing=True)
        return found

    def listing(self, *, full: bool = True) -> tuple[list[Item], list[Incomplete]]:
        items: list[Item] = []
        gaps: list[Incomplete] = []
        for one in self.connector.listing(full=full):
            items.append(one) if isinstance(one, Item) else gaps.append(one)
        self.cursor = self.connector.cursor()
        return items, gaps


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, fetch_seconds=60, max_bytes=1_000_000, fetch_allow=("127.0.0.0/8", "localhost"))


@pytest.fixture
def served() -> Iterator[Site]:
    with site(12) as made:
        yield made


@pytest.fixture
def run(served: Site, settings: Settings, tmp_path: Path) -> Run:
    return Run(settings, tmp_path, type="pages", urls=served.url("/"))


def document(found: Visit) -> Document:
    assert isinstance(found, Document)
    return found


def test_a_page_and_again(served: Site, run: Run) -> None:
    key = served.url("/page/5.html")
    found = document(run.visit(key))
    assert isinstance(found.content, Path)
    assert found.content.read_bytes() == served.pages["/page/5.html"].content()
    assert (found.filename, found.uri, found.metadata) == ("5.html", key, {"url": key})
    assert served.calls[-1].headers["user-agent"].startswith("gristmill/")
    assert "if-none-match" not in served.calls[-1].headers

    run.again()
    served.reset()
    assert isinstance(run.visit(key), Unchanged)
    assert served.requests == {"/robots.txt": 1, "/page/5.html": 1}
    assert served.sent["/page/5.html"] == 0, "304"
    assert {"if-none-match", "if-modified-since"} <= served.calls[-1].headers.keys()

    served.edit("/page/5.html", "Something else about boat 5.")
    assert b"Something else" in document(run.visit(key)).content.read_bytes()  # type: ignore[union-attr]


def test_the_interval_follows_the_page(served: Site, run: Run) -> None:
    key = served.url("/page/5.html")
    first = run.visit(key)
    assert first.state["interval"] == 86_400  # type: ignore[union-attr]
    assert run.visit(key).state["interval"] == 129_600  # type: ignore[union-attr]
    served.edit("/page/5.html", "Again something else.")
    last = document(run.visit(key))
    assert last.state["interval"] == 64_800
    assert last.again_in is not None
    assert 58_320 <= last.again_in <= 71_280


@pytest.mark.parametrize("path", ["/plain", "/nonce"])
def test_without_validators(path: str, served: Site, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "extract", READ_APART)
    key = served.url(path)
    first = document(run.visit(key))
    second = run.visit(key)
    assert isinstance(second, Unchanged), "the bytes are the same, or at least the text"
    assert (first.state["digest"] == second.state["digest"]) is (path == "/plain")
    assert "if-none-match" not in served.calls[-1].headers
    served.edit(path, "It says something new now.")
    assert document(run.visit(key)).state["text"] != first.state["text"]


def test_validators_that_mean_nothing(served: Site, run: Run) -> None:
    key = served.url("/page/5.html")
    found = []
    for number in range(4):
        served.pages["/page/5.html"].head = f"<script nonce={number}></script>"
        found.append(type(run.visit(key)))
    assert found == [Document, Document, Unchanged, Unchanged], "once too often, as nothing was read at first"
    assert served.requests[served.calls[-1].path] == 4


def test_files(served: Site, run: Run) -> None:
    names = {"/files/report.pdf": "report.pdf", "/files/notes.docx": "notes.docx", "/download": "a b.docx"}
    for path, name in names.items():
        found = document(run.visit(served.url(path)))
        assert isinstance(found.content, Path)
        assert found.filename == name
        digest = hashlib.sha256(served.pages[path].content()).hexdigest()
        assert hashlib.sha256(found.content.read_bytes()).hexdigest() == found.state["digest"] == digest
        assert isinstance(run.visit(served.url(path)), Unchanged)


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("/duplicate?ref=7", "/page/1.html"),
        ("/print/2", "/page/2.html"),
        ("/home-canonical", "/home-canonical"),
        ("/old", "/page/3.html"),
        ("/temp", "/temp"),
        ("/temp-old", "/temp-old"),
        ("/mixed", "/mixed2"),
    ],
)
def test_where_a_page_is(path: str, uri: str, served: Site, run: Run) -> None:
    found = document(run.visit(served.url(path)))
    assert found.uri == served.url(uri)
    assert found.metadata == {"url": served.url(uri)}
    served.reset()
    assert isinstance(run.visit(served.url(path)), Unchanged)
    assert served.sent.total() <= len(served.robots or ""), "redirects have no body and the page answers 304"


def test_a_page_that_moves(served: Site, run: Run) -> None:
    old, new = served.url("/page/5.html"), served.url("/moved.html")
    document(run.visit(old))
    served.move("/page/5.html", "/moved.html", 308)
    assert document(run.visit(old)).uri == new
    assert isinstance(run.visit(old), Unchanged)
    served.redirects["/page/5.html"] = (307, "/moved.html")
    assert document(run.visit(old)).uri == old, "no longer for good, and not taken from a 304"


def test_a_canonical_address_that_changes(served: Site, run: Run) -> None:
    key = served.url("/page/5.html")
    served.pages["/page/6.html"].listed = False
    document(run.visit(key))
    served.pages["/page/5.html"].head = f"<link rel=canonical href={served.url('/page/6.html?utm_campaign=x')}>"
    assert document(run.visit(key)).uri == served.url("/page/6.html"), "although its text is the same"


def test_loops_end(served: Site, run: Run) -> None:
    with pytest.raises(PermanentError, match="redirects"):
        run.visit(served.url("/loop"))
    assert served.requests == {"/robots.txt": 1, "/loop": 1, "/loop2": 1}


def test_gone(served: Site, run: Run) -> None:
    key = served.url("/page/5.html")
    document(run.visit(key))
    text = served.pages["/page/5.html"].text
    for status in (404, 410):
        served.delete("/page/5.html", status)
        found = run.visit(key)
        assert isinstance(found, Gone)
        assert (str(status) in found.reason, found.at_once) == (True, False)
        del served.statuses["/page/5.html"]
        served.add("/page/5.html", "Page 5", text)
    # Whatever is left of it in the index, it is handed over as a whole.
    assert document(run.visit(key)).uri == key
    assert "if-none-match" not in served.calls[-1].headers


@pytest.mark.parametrize("path", ["/hidden", "/secret-header", "/private/1"])
def test_pages_that_do_not_want_to_be_found(path: str, served: Site, settings: Settings, tmp_path: Path) -> None:
    run = Run(settings, tmp_path, type="pages", urls=served.url(path))
    found = run.visit(served.url(path))
    assert isinstance(found, Gone)
    assert ("robots.txt" if path == "/private/1" else "noindex") in found.reason
    assert served.requests[path] == (0 if path == "/private/1" else 1)
    assert not found.at_once
    ours = Run(settings, tmp_path, type="pages", urls=served.url(path), respect_robots=False)
    served.reset()
    assert document(ours.visit(served.url(path))).uri == served.url(path)
    assert served.requests == {path: 1}


def test_a_known_page_that_hides(served: Site, run: Run) -> None:
    key = served.url("/page/5.html")
    document(run.visit(key))
    served.pages["/page/5.html"].headers["X-Robots-Tag"] = "noindex"
    assert isinstance(run.visit(key), Gone), "a 304 has the header, too"
    del served.pages["/page/5.html"].headers["X-Robots-Tag"]
    document(run.visit(key))
    served.robots = "User-agent: gristmill\nDisallow: /page/5\nUser-agent: *\nAllow: /\n"
    run.again()
    served.reset()
    assert isinstance(run.visit(key), Gone)
    assert served.requests == {"/robots.txt": 1}


def test_a_redirect_to_what_is_not_allowed(served: Site, run: Run) -> None:
    served.redirects["/page/5.html"] = (301, "/private/1")
    assert isinstance(run.visit(served.url("/page/5.html")), Gone)
    assert served.requests["/private/1"] == 0


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (401, PermanentError, "fetch_denied"),
        (403, PermanentError, "fetch_denied"),
        (451, PermanentError, "fetch_unusable"),
        (500, RetryableError, "fetch_failed"),
        (429, RetryableError, "fetch_unavailable"),
    ],
)
def test_other_answers(status: int, kind: type[Exception], code: str, served: Site, run: Run) -> None:
    for _ in range(2):
        with pytest.raises(kind) as caught:
            run.visit(served.url(f"/status/{status}"))
        assert type(caught.value) is kind
        assert caught.value.code == code  # type: ignore[attr-defined]
    document(run.visit(served.url("/page/1.html")))


def test_a_host_that_asks_to_wait_is_left_alone(served: Site, run: Run) -> None:
    with pytest.raises(RetryableError) as caught:
        run.visit(served.url("/slow"))
    assert (type(caught.value), caught.value.retry_after) == (RetryableError, 3600.0)
    served.reset()
    with pytest.raises(RetryableError, match="asks to wait") as caught:
        run.visit(served.url("/page/1.html"))
    assert caught.value.retry_after == 3600.0
    assert not served.requests
    with site(2) as other:
        document(run.visit(other.url("/page/1.html")))
    run.again()
    document(run.visit(served.url("/page/1.html")))


def test_a_host_that_answers_no_more(served: Site, settings: Settings, tmp_path: Path) -> None:
    run = Run(settings, tmp_path, type="pages", urls=served.url("/"))
    with site(9, specials=False) as other:
        document(run.visit(other.url("/page/0.html")))
    for number in range(5):
        with pytest.raises(RetryableError, match="cannot be reached"):
            run.visit(other.url(f"/page/{number}.html"))
    assert run.connector.client.requests == 2 + 3
    for number in range(5):
        with pytest.raises(RetryableError, match="error of its own"):
            run.visit(served.url(f"/status/50{number % 3}"))
    document(run.visit(served.url("/page/1.html")))  # these were answers, each for itself


def test_only_failures_in_a_row_count(settings: Settings, tmp_path: Path) -> None:
    def answer(call: Call) -> Answer:
        if call.path == "/hang-up":
            raise ConnectionError
        return Answer(int(call.path[1:]), b"words", {"Content-Type": "text/plain"})

    with web_server(answer) as server:
        run = Run(settings, tmp_path, type="pages", urls="http://a.test/", respect_robots=False)
        base = f"http://127.0.0.1:{server.port}"
        for path in ("/hang-up", "/hang-up", "/500", "/hang-up", "/hang-up"):
            with pytest.raises(RetryableError):
                run.visit(base + path)
        document(run.visit(f"{base}/200"))
        for _ in range(4):
            with pytest.raises(RetryableError):
                run.visit(f"{base}/hang-up")
        assert len(server.calls) == 5 + 1 + 3


def test_politeness(served: Site, settings: Settings, tmp_path: Path) -> None:
    run = Run(settings, tmp_path, type="pages", urls=served.url("/"), delay="5s")
    with site(2, specials=False) as other:
        other.robots = "User-agent: *\nCrawl-delay: 600\n"
        run.visit(served.url("/page/1.html"))
        assert run.time.waits == [5.0], "after robots.txt; its Crawl-delay of 2 s is less"
        run.visit(other.url("/page/1.html"))
        assert run.time.waits == [5.0, 60.0], "as long as is heeded at most"
        run.visit(served.url("/page/2.html"))
        assert run.time.waits == [5.0, 60.0], "5 s have gone by already"
        run.time.now += timedelta(seconds=2)
        run.visit(served.url("/old"))
        assert run.time.waits[2:] == [3.0, 5.0], "redirects are requests as well"


@pytest.mark.parametrize("status", [401, 403, 404])
def test_no_robots_txt_closes_nothing(status: int, served: Site, run: Run) -> None:
    served.robots_status = status
    document(run.visit(served.url("/private/1")))
    document(run.visit(served.url("/page/1.html")))
    assert served.requests["/robots.txt"] == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_robots_txt_that_cannot_be_had_closes_everything(status: int, served: Site, run: Run) -> None:
    served.robots_status = status
    for _ in range(2):
        with pytest.raises(RetryableError, match=r"robots\.txt"):
            run.visit(served.url("/page/1.html"))
    assert served.requests == {"/robots.txt": 1}


def test_a_robots_txt_behind_redirects_and_too_long(served: Site, run: Run) -> None:
    served.redirects |= {"/robots.txt": (301, "/r1"), "/r1": (302, "/robots")}
    rules = "User-agent: *\nDisallow: /page/1.html\n"
    served.pages["/robots"] = replace(
        served.pages["/plain"],
        body=(rules + "# " + "x" * 500 * 1024 + "\nDisallow: /page/2.html\n").encode(),
        media_type="text/plain",
    )
    assert isinstance(run.visit(served.url("/page/1.html")), Gone)
    document(run.visit(served.url("/page/2.html")))
    assert served.requests["/robots.txt"] == 1


def test_a_robots_txt_that_failed_is_asked_again_after_ten_minutes(served: Site, run: Run) -> None:
    served.robots_status = 500
    with pytest.raises(RetryableError):
        run.visit(served.url("/page/1.html"))
    served.robots_status = 200
    run.time.now += timedelta(minutes=10)
    document(run.visit(served.url("/page/1.html")))


def test_robots_txt_is_asked_again_after_a_day(served: Site, run: Run) -> None:
    document(run.visit(served.url("/page/1.html")))
    served.robots = "User-agent: *\nDisallow: /"
    assert isinstance(run.visit(served.url("/page/1.html")), Unchanged)
    run.time.now += timedelta(days=1)
    assert isinstance(run.visit(served.url("/page/1.html")), Gone)
    assert served.requests["/robots.txt"] == 2


@pytest.fixture
def trapped() -> Iterator[Trap]:
    with trap() as made:
        yield made


def test_the_boundary_holds_for_every_request(trapped: Trap, served: Site, settings: Settings, tmp_path: Path) -> None:
    """Only 127.0.0.1 is open; 127.0.0.2 is not."""
    closed = f"http://127.0.0.2:{trapped.port}"
    tight = settings.model_copy(update={"fetch_allow": ("127.0.0.1",)})
    run = Run(tight, tmp_path, type="pages", urls=served.url("/"))
    served.redirects["/out"] = (301, f"{closed}/page")
    for url in (f"{closed}/page", served.url("/out")):
        with pytest.raises(PermanentError) as caught:
            run.visit(url)
        assert caught.value.code == "fetch_refused"
    served.robots = f"Sitemap: {closed}/sitemap.xml\n"
    sitemap = Run(tight, tmp_path, type="sitemap", urls=served.url("/"))
    with pytest.raises(PermanentError, match="public internet"):
        sitemap.listing()
    served.redirects["/feed.xml"] = (302, f"{closed}/feed")
    with pytest.raises(PermanentError, match="public internet"):
        Run(tight, tmp_path, type="feed", urls=served.url("/feed.xml")).listing()
    served.redirects["/robots.txt"] = (302, f"{closed}/robots.txt")
    run.again()
    with pytest.raises(PermanentError, match="public internet"):
        run.visit(served.url("/page/1.html"))
    assert trapped.connections() == 0


def test_named_pages(served: Site, settings: Settings, tmp_path: Path) -> None:
    urls = [served.url("/page/1.html?utm_source=x"), served.url("/duplicate?ref=7"), served.url("/page/1.html#top")]
    run = Run(settings, tmp_path, type="pages", urls=urls)
    one, duplicate = served.url("/page/1.html"), served.url("/duplicate?ref=7")
    assert run.listing() == ([Item(one, one), Item(duplicate, duplicate)], [])
    run.visit(duplicate)
    run.again()
    assert run.listing()[0][1] == Item(duplicate, one), "where it was found to be"
    assert (run.connector.absence, run.connector.incremental) == ("gone", False)
    assert run.connector.uri_of(one) == one
    assert run.connector.pushed({"url": one}) == ()


def test_a_sitemap(served: Site, settings: Settings, tmp_path: Path) -> None:
    run = Run(settings, tmp_path, type="sitemap", urls=served.url("/"))
    items, gaps = run.listing()
    assert gaps == []
    assert {item.key for item in items} == {served.url(path) for path in served.listed()}
    assert served.requests == {"/robots.txt": 1, "/sitemap-index.xml": 1, "/sitemap-0.xml.gz": 1}
    [item] = [item for item in items if item.key == served.url("/page/5.html")]
    assert item.version == "2024-01-01T05:00:00+00:00"
    assert document(run.visit(item.key)).version == item.version
    served.edit("/page/5.html", "Later.")
    run.again()
    [item] = [item for item in run.listing()[0] if item.key.endswith("/5.html")]
    assert item.version == served.now.isoformat()
    assert document(run.visit(item.key)).version == item.version
    run.again()
    assert isinstance(run.visit(item.key), Unchanged)
    assert run.known[item.key].version == item.version, "not listed in this run"
    assert run.connector.absence == "ask"


def test_a_sitemap_in_its_usual_place_and_with_patterns(served: Site, settings: Settings, tmp_path: Path) -> None:
    served.robots = None
    run = Run(
        settings, tmp_path, type="sitemap", urls=[served.url("/sitemap.txt")], include="/page/*", exclude="/page/1*"
    )
    items, gaps = run.listing()
    assert sorted(item.key for item in items) == [served.url(f"/page/{number}.html") for number in (0, *range(2, 10))]
    assert gaps == []
    assert isinstance(run.visit(served.url("/page/11.html")), Gone), "the settings exclude it"
    nothing = Run(settings, tmp_path, type="sitemap", urls=served.url("/"))
    with pytest.raises(PermanentError, match="404"):
        nothing.listing()
    assert served.requests["/sitemap.xml"] == 1


def test_what_is_missing_from_sitemaps_is_told(settings: Settings, tmp_path: Path) -> None:
    def answer(call: Call) -> Answer:
        base = f"http://{call.headers['host']}"
        names = ["good.xml", "bad.xml", "none.xml", "index.xml", "deep1.xml"]
        index = "".join(f"<sitemap><loc>{base}/{name}</loc></sitemap>" for name in names)
        good = f"<urlset><url><loc>{base}/a</loc></url><url><loc>http://other.test/b</loc></url></urlset>"
        deeper = {f"/deep{n}.xml": f"<sitemap><loc>{base}/deep{n + 1}.xml</loc></sitemap>" for n in range(1, 9)}
        texts = {
            "/index.xml": f"<sitemapindex>{index}<sitemap><loc>http://other.test/x</loc></sitemap></sitemapindex>",
            "/good.xml": good,
            "/bad.xml": good.replace("/a<", "/c<")[:-9],
            **{path: f"<sitemapindex>{text}</sitemapindex>" for path, text in deeper.items()},
        }
        return Answer(200, texts[call.path].encode()) if call.path in texts else Answer(404)

    with web_server(answer) as server:
        base = f"http://127.0.0.1:{server.port}"
        run = Run(settings, tmp_path, type="sitemap", urls=f"{base}/index.xml")
        items, gaps = run.listing()
        assert [item.key for item in items] == [f"{base}/a", f"{base}/c"]
        said = " | ".join(gap.reason for gap in gaps)
        assert len(gaps) == 4
        for part in (
            "bad.xml: the sitemap is no sound XML",
            "none.xml: 127.0.0.1 answers 404",
            "another host",
            "deep3",
        ):
            assert part in said
        assert [call.path for call in server.calls].count("/index.xml") == 1
        opened = Run(settings, tmp_path, type="sitemap", urls=f"{base}/good.xml", hosts=["Other.test"])
        assert [item.key for item in opened.listing()[0]] == [f"{base}/a", "http://other.test/b"]
        with pytest.raises(PermanentError, match="404"):
            Run(settings, tmp_path, type="sitemap", urls=f"{base}/none.xml").listing()


def test_a_feed(served: Site, settings: Settings, tmp_path: Path) -> None:
    served.edit("/page/5.html", "News of boat 5.")
    run = Run(settings, tmp_path, type="feed", urls=served.url("/feed.xml"))
    items, gaps = run.listing()
    assert gaps == []
    assert len(items) == 5
    assert items[0] == Item(served.url("/page/5.html"), served.url("/page/5.html"), served.now.isoformat())
    assert document(run.visit(items[0].key)).version == served.now.isoformat()
    run.again()
    assert run.listing(full=False) == ([], [])
    assert served.calls[-1].headers["if-none-match"]
    run.again()
    assert len(run.listing(full=True)[0]) == 5
    served.edit("/page/6.html", "News of boat 6.")
    run.again()
    assert run.listing(full=False)[0][0].key == served.url("/page/6.html")
    assert (run.connector.absence, run.connector.incremental) == ("nothing", True)


def test_a_feed_that_is_none(served: Site, settings: Settings, tmp_path: Path) -> None:
    both = [served.url("/page/1.html"), served.url("/feed.xml")]
    items, gaps = Run(settings, tmp_path, type="feed", urls=both).listing()
    assert (len(items), len(gaps)) == (5, 1)
    assert "neither RSS nor Atom" in gaps[0].reason
    with pytest.raises(PermanentError, match="neither"):
        Run(settings, tmp_path, type="feed", urls=both[0]).listing()
    with pytest.raises(PermanentError, match="robots"):
        Run(settings, tmp_path, type="feed", urls=served.url("/private/feed.xml")).listing()


def test_bytes_are_counted(served: Site, run: Run) -> None:
    key = served.url("/page/5.html")
    run.visit(key)
    first = run.connector.bytes_in
    assert first > served.sent.total() > 300
    run.visit(key)
    assert 100 < run.connector.bytes_in - first < 400, "the headers of a 304"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"urls": []}, "at least 1 item"),
        ({"urls": "file:///etc/passwd"}, "http"),
        ({"urls": "http://a.test/", "recrawl_min": "2d", "recrawl_max": "1d"}, "recrawl_min is longer"),
        ({"urls": "http://a.test/", "user_agent": "bot\r\nX: y"}, "one line"),
        ({"urls": "http://a.test/", "delay": -1}, "greater than or equal to 0"),
        ({"urls": "http://a.test/", "depth": 2}, "depth"),
    ],
)
def test_settings_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PagesConfig(type="pages", **options)
