"""A bucket as a source, over real HTTP against an S3 server that fails where a test has it fail."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.session import AioSession
from psycopg import Connection
from pydantic import ValidationError
from s3fs import S3FileSystem

from pipelines.errors import ConfigurationError, PermanentError, RetryableError, UnavailableError
from tests.fakes.object_server import PAGE, ObjectServer, serving_objects
from worker.connectors.bucket import Bucket, BucketConfig, open_bucket
from worker.connectors.contract import Document, Gone, Item, Known, Surroundings, Unchanged
from worker.connectors.registry import load_syncs
from worker.object_store import s3
from worker.settings import Settings
from worker.sync.syncer import Syncer


@pytest.fixture(scope="module")
def _server() -> Iterator[ObjectServer]:
    with serving_objects() as server:
        yield server


@pytest.fixture(scope="module")
def session() -> AioSession:
    """One that all connectors here share: each one's own reads the same descriptions of services again."""
    return AioSession()


@pytest.fixture
def server(_server: ObjectServer, session: AioSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    monkeypatch.setattr(s3, "ATTEMPTS", 1)
    monkeypatch.setattr(s3, "S3FileSystem", partial(S3FileSystem, session=session))
    _server.admit(monkeypatch)
    yield _server
    _server.heal()


class Opener:
    """Opens connectors, and closes them after the test."""

    def __init__(self, server: ObjectServer, home: Path, stack: ExitStack) -> None:
        self._server, self._home, self._stack = server, home, stack

    def __call__(self, url: str, *, max_bytes: int = 1000, ignore: tuple[str, ...] = (), **fields: Any) -> Bucket:
        values = {"type": "bucket", "url": url, "endpoint_url": self._server.url, **fields}
        settings = Settings(home=self._home, max_bytes=max_bytes, ignore=ignore)
        return self._stack.enter_context(
            open_bucket(BucketConfig.model_validate(values), Surroundings(settings=settings))
        )


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def opened(server: ObjectServer, tmp_path: Path, stack: ExitStack) -> Opener:
    return Opener(server, tmp_path, stack)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


def items(bucket: Bucket) -> list[Item]:
    found = list(bucket.listing(full=True))
    assert all(isinstance(one, Item) for one in found)
    return [one for one in found if isinstance(one, Item)]


# --- listing ---------------------------------------------------------------------------------------------------


def test_a_listing_names_objects_with_their_etags(server: ObjectServer, opened: Opener) -> None:
    name = server.bucket()
    etag = server.put(name, "docs/räume/plan 1.pdf", b"one")
    server.put(name, "other/b.txt")
    server.put(name, "docs-2/b.txt")
    (found,) = items(opened(f"s3://{name}/docs"))
    assert found == Item("räume/plan 1.pdf", f"s3://{name}/docs/r%C3%A4ume/plan%201.pdf", etag, content_addressed=True)


def test_uris_are_the_same_however_the_place_is_spelt(server: ObjectServer, opened: Opener) -> None:
    name = server.bucket(**{"a b/c.txt": b"1"})
    for url in (f"s3://{name}/a b", f"s3://{name}/a b/", f"s3a://{name}//a b//"):
        (found,) = items(opened(url))
        assert (found.key, found.uri) == ("c.txt", f"s3://{name}/a%20b/c.txt"), url
        assert opened(url).uri_of("c.txt") == found.uri


def test_folders_and_ignored_names_are_left_out(server: ObjectServer, opened: Opener) -> None:
    name = server.bucket()
    for key in ("folder/", "p/", ".git/config", "node_modules/x.js", "~$a.docx", "a.TMP", "drafts/x.md", "p/q.md"):
        server.put(name, key, b"" if key.endswith("/") else b"content")
    assert [one.key for one in items(opened(f"s3://{name}", ignore=("drafts/",)))] == ["p/q.md"]
    assert items(opened(f"s3://{name}/p")) == items(opened(f"s3://{name}/p/"))
    assert [one.key for one in items(opened(f"s3://{name}/p"))] == ["q.md"]


def test_patterns_choose_names(server: ObjectServer, opened: Opener) -> None:
    name = server.bucket()
    for key in ("a/x.PDF", "a/b/x.pdf", "b/x.pdf", "b/x.md", "report.pdf", "abc/deep.txt"):
        server.put(name, key)

    def chosen(**fields: list[str]) -> list[str]:
        return [one.key for one in items(opened(f"s3://{name}", **fields))]

    assert chosen(include=["*.pdf"], exclude=["b/*"]) == ["a/b/x.pdf", "a/x.PDF", "report.pdf"]
    assert chosen(include=["a/*"]) == ["a/b/x.pdf", "a/x.PDF"]
    assert chosen(include=["ab*"]) == [], "without a slash it is the last part that counts"
    assert chosen(include=["report.pdf", "abc/*"]) == ["abc/deep.txt", "report.pdf"]


def test_pages_are_read_as_they_are_needed_and_never_remembered(server: ObjectServer, opened: Opener) -> None:
    name = server.bucket(**{f"{number}.txt": b"x" for number in range(3 * PAGE + 1)})
    bucket = opened(f"s3://{name}")
    listing = bucket.listing(full=True)
    next(listing)
    assert server.count("GET", f"/{name}?list-type=2") == 1
    assert len(list(listing)) == 3 * PAGE
    assert server.count("GET", f"/{name}?list-type=2") == 4
    server.put(name, "new.txt")
    assert len(items(bucket)) == 3 * PAGE + 2


def test_a_listing_that_breaks_off_says_so(server: ObjectServer, opened: Opener) -> None:
    name = server.bucket(**{f"{number}.txt": b"x" for number in range(2 * PAGE)})
    server.fail("GET", "continuation-token", 500, "InternalError")
    found = []
    with pytest.raises(RetryableError, match="500 InternalError") as caught:
        for one in opened(f"s3://{name}").listing(full=True):
            found.append(one)
    assert not isinstance(caught.value, UnavailableError)
    assert len(found) == PAGE


@pytest.mark.parametrize("token", ["", "<NextContinuationToken>same</NextContinuationToken>"])
def test_a_listing_that_goes_nowhere_ends(server: ObjectServer, opened: Opener, token: str) -> None:
    name = server.bucket()
    body = f"<ListBucketResult><IsTruncated>true</IsTruncated>{token}</ListBucketResult>"
    server.answer("GET", f"/{name}?", 200, body, times=5)
    with pytest.raises(RetryableError, match="not where"):
        items(opened(f"s3://{name}"))


def test_a_short_hiccup_is_ridden_out(server: ObjectServer, opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "ATTEMPTS", 2)
    name = server.bucket(**{"a.txt": b"x"})
    server.fail("GET", "list-type", 503, "SlowDown")
    assert len(items(opened(f"s3://{name}"))) == 1


# --- visits ----------------------------------------------------------------------------------------------------


def test_a_visit_downloads_into_the_folder(server: ObjectServer, opened: Opener, folder: Path) -> None:
    name = server.bucket()
    etag = server.put(name, "a/ü b.txt", b"hello")
    found = opened(f"s3://{name}").visit("a/ü b.txt", None, folder)
    assert isinstance(found, Document)
    assert isinstance(found.content, Path)
    assert found.content.parent == folder
    assert found.content.read_bytes() == b"hello"
    assert (found.filename, found.uri, found.version) == ("ü b.txt", f"s3://{name}/a/%C3%BC%20b.txt", etag)
    assert (found.metadata, found.again_in) == ({}, None)


def test_the_version_is_that_of_the_bytes_that_came(server: ObjectServer, opened: Opener, folder: Path) -> None:
    name = server.bucket(**{"a.txt": b"old"})
    bucket = opened(f"s3://{name}")
    (listed,) = items(bucket)
    replaced: list[str] = []
    server.before("GET", "/a.txt", lambda: replaced.append(server.put(name, "a.txt", b"new")))
    found = bucket.visit("a.txt", None, folder)
    assert isinstance(found, Document)
    assert isinstance(found.content, Path)
    assert found.content.read_bytes() == b"new"
    assert [found.version] == replaced
    assert found.version != listed.version


def test_what_is_as_it_was_is_not_downloaded(server: ObjectServer, opened: Opener, folder: Path) -> None:
    name = server.bucket()
    etag = server.put(name, "a.txt", b"hello")
    bucket = opened(f"s3://{name}")
    uri = bucket.uri_of("a.txt")
    assert bucket.visit("a.txt", Known("a.txt", uri, etag), folder) == Unchanged(version=etag)
    assert list(folder.iterdir()) == []
    back = bucket.visit("a.txt", Known("a.txt", uri, etag, missing=True), folder)
    assert isinstance(back, Document), "it was taken out of the index"


def test_an_object_in_parts_has_one_version(server: ObjectServer, opened: Opener, folder: Path) -> None:
    name = server.bucket()
    upload = server.client.create_multipart_upload(Bucket=name, Key="a.txt")["UploadId"]
    part = server.client.upload_part(Bucket=name, Key="a.txt", UploadId=upload, PartNumber=1, Body=b"hello")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    server.client.complete_multipart_upload(Bucket=name, Key="a.txt", UploadId=upload, MultipartUpload=parts)
    bucket = opened(f"s3://{name}")
    (listed,) = items(bucket)
    found = bucket.visit("a.txt", None, folder)
    assert isinstance(found, Document)
    assert listed.version is not None
    assert listed.version.endswith("-1")
    assert found.version == listed.version


def test_what_is_gone_is_gone_at_once(server: ObjectServer, opened: Opener, folder: Path) -> None:
    name = server.bucket()
    found = opened(f"s3://{name}").visit("a.txt", None, folder)
    assert isinstance(found, Gone)
    assert found.at_once


def test_what_is_too_large_is_refused_before_it_is_read(server: ObjectServer, opened: Opener, folder: Path) -> None:
    name = server.bucket(**{"a.txt": b"x" * 11})
    with pytest.raises(PermanentError, match="more than the 10 bytes") as caught:
        opened(f"s3://{name}", max_bytes=10).visit("a.txt", None, folder)
    assert caught.value.code == "too_large"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("status", "code", "error", "named"),
    [
        (403, "AccessDenied", PermanentError, "access_denied"),
        (403, "InvalidObjectState", PermanentError, "archived"),
        (404, "NoSuchBucket", ConfigurationError, "store_refuses"),
        (403, "InvalidAccessKeyId", ConfigurationError, "store_refuses"),
        (403, "SignatureDoesNotMatch", ConfigurationError, "store_refuses"),
        (400, "ExpiredToken", ConfigurationError, "store_refuses"),
        (500, "InternalError", RetryableError, "store_failed"),
        (502, "", RetryableError, "store_failed"),
        (503, "SlowDown", UnavailableError, "store_busy"),
        (503, "", UnavailableError, "store_busy"),
    ],
)
def test_refusals_have_their_kind(
    server: ObjectServer, opened: Opener, folder: Path, status: int, code: str, error: type[Exception], named: str
) -> None:
    name = server.bucket(**{"a.txt": b"hello"})
    server.fail("GET", "/a.txt", status, code, headers={"Retry-After": "7"})
    with pytest.raises(error) as caught:
        opened(f"s3://{name}").visit("a.txt", None, folder)
    assert type(caught.value) is error
    assert getattr(caught.value, "code", None) == named
    assert getattr(caught.value, "retry_after", None) == (7.0 if error is UnavailableError else None)
    assert list(folder.iterdir()) == []


def test_a_download_that_is_cut_is_no_document(server: ObjectServer, opened: Opener, folder: Path) -> None:
    name = server.bucket(**{"a.txt": b"x" * 1000})
    server.cut("GET", "/a.txt")
    with pytest.raises(RetryableError, match="broke off"):
        opened(f"s3://{name}").visit("a.txt", None, folder)


def test_a_store_that_is_silent_is_away(
    server: ObjectServer, opened: Opener, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "READ_SECONDS", 0.1)
    name = server.bucket(**{"a.txt": b"hello"})
    done = threading.Event()
    server.hold("GET", "/a.txt", done)
    try:
        with pytest.raises(UnavailableError, match="does not answer"):
            opened(f"s3://{name}").visit("a.txt", None, folder)
    finally:
        done.set()
    with pytest.raises(UnavailableError, match="does not answer"):
        items(opened(f"s3://{name}", endpoint_url="http://127.0.0.1:1"))


def test_wrong_places_are_told(server: ObjectServer, opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="NoSuchBucket"):
        items(opened("s3://nowhere"))
    with pytest.raises(ConfigurationError, match="gcsfs"):
        opened("gs://bucket")
    with pytest.raises(ConfigurationError, match="Protocol not known"):
        opened("nonsense://bucket")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setattr(s3, "S3FileSystem", S3FileSystem)  # its own session looks for credentials anew
    with pytest.raises(ConfigurationError, match="no credentials"):
        items(opened(f"s3://{server.bucket()}"))
    name = server.bucket(**{"a.txt": b"x"})
    assert len(items(opened(f"s3://{name}", anonymous=True))) == 1
    assert len(items(opened(f"s3://{name}", key="k", secret="s"))) == 1


# --- whole runs ------------------------------------------------------------------------------------------------


def test_runs_follow_the_bucket(
    server: ObjectServer, tmp_path: Path, dsn: str, database: Connection[Any], stack: ExitStack
) -> None:
    """New, changed, renamed, removed; and a listing that breaks off removes nothing."""
    name = server.bucket(**{f"docs/{number}.txt": b"text %d" % number for number in range(PAGE + 1)})
    syncs = {"b": {"type": "bucket", "url": f"s3://{name}/docs", "endpoint_url": server.url}}
    settings = Settings(home=tmp_path, database_url=dsn, broker_url="redis://127.0.0.1:1/0", syncs=syncs)
    syncer = stack.enter_context(closing(Syncer(settings, load_syncs(settings))))

    def run() -> tuple[dict[str, int], str | None]:
        report, error = syncer.sync("b")
        return {key: count for key, count in report.counts.items() if count and key != "full"}, error and error.code

    def live() -> dict[str, int]:
        rows = database.execute("select uri, id from sources where state <> 'deleted'").fetchall()
        return {uri.removeprefix(f"s3://{name}/docs/"): row for uri, row in rows}

    counts, error = run()
    assert (counts["new"], error) == (PAGE + 1, None)
    before = live()
    assert set(before) == {f"{number}.txt" for number in range(PAGE + 1)}
    (kind,) = database.execute("select kind from sources limit 1").fetchone() or ()
    assert kind == "synced"
    requests = len(server.requests)
    counts, error = run()
    assert (counts["unchanged"], error) == (PAGE + 1, None)
    assert len(server.requests) - requests == 2, "two pages, and no object"

    server.client.delete_object(Bucket=name, Key="docs/0.txt")
    server.client.delete_object(Bucket=name, Key="docs/1.txt")
    server.put(name, "docs/new/1.txt", b"text 1")
    server.put(name, "docs/2.txt", b"changed")
    server.fail("GET", "continuation-token", 500, "InternalError")
    server.put(name, "docs/3a.txt", b"text 3a")
    counts, error = run()
    assert error == "store_failed"
    assert {"0.txt", "1.txt"} <= set(live())

    counts, error = run()
    assert error is None
    assert set(live()) == {"2.txt", "3.txt", "3a.txt", "new/1.txt"}
    assert live()["new/1.txt"] == before["1.txt"], "renamed"
    versions = dict(database.execute("select uri, version from sources").fetchall())
    assert versions[f"s3://{name}/docs/2.txt"] == 2


# --- settings, events, other stores ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"url": "bucket"}, "url"),
        ({"url": "file:///srv"}, "type folder"),
        ({"url": "https://host/bucket"}, "endpoint_url"),
        ({"url": "s3://b", "key": "k"}, "belong together"),
        ({"url": "s3://b", "key": "k", "secret": "hidden", "anonymous": True}, "excludes"),
        ({"url": "s3://b", "prefix": "p"}, "prefix"),
    ],
)
def test_settings_that_make_no_sense_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said) as caught:
        BucketConfig.model_validate({"type": "bucket", **fields})
    assert "hidden" not in str(caught.value)


def test_notifications_name_keys(server: ObjectServer, opened: Opener) -> None:
    name = server.bucket()
    bucket = opened(f"s3://{name}/docs", include=["*.txt"])

    def told(*places: tuple[str, str]) -> list[str]:
        records = [{"s3": {"bucket": {"name": where}, "object": {"key": key}}} for where, key in places]
        return list(bucket.pushed({"Records": records}))

    assert told((name, "docs/a+b%C3%BC.txt"), (name, "else/a.txt"), ("other", "docs/a.txt")) == ["a bü.txt"]
    assert told((name, "docs/a.pdf"), (name, "docs/x/"), (name, "docs/.git/a.txt")) == []
    for nonsense in ({}, [], "x", None, {"Records": 1}, {"Records": [1, {"s3": None}]}):
        assert list(bucket.pushed(nonsense)) == []
    assert json.loads(json.dumps(bucket.cursor())) == {}


def test_other_stores_are_read_through_fsspec(server: ObjectServer, opened: Opener, folder: Path) -> None:
    fs = pytest.importorskip("fsspec").filesystem("memory")
    fs.pipe({"/tree/a/b.txt": b"hello", "/tree/c.txt": b"x", "/tree/.git/x": b"x", "/else/d.txt": b"x"})
    bucket = opened("memory://tree/")
    found = {one.key: one for one in items(bucket)}
    assert set(found) == {"a/b.txt", "c.txt"}
    assert found["a/b.txt"].uri == "memory://tree/a/b.txt"
    assert not found["a/b.txt"].content_addressed
    document = bucket.visit("a/b.txt", None, folder)
    assert isinstance(document, Document)
    assert isinstance(document.content, Path)
    assert document.content.read_bytes() == b"hello"
    assert document.version == found["a/b.txt"].version
    fs.pipe("/tree/a/b.txt", b"hello again")
    assert {one.key: one.version for one in items(bucket)}["a/b.txt"] != document.version
    assert isinstance(bucket.visit("a/gone.txt", None, folder), Gone)
    fs.rm("/tree", recursive=True)
    with pytest.raises(RetryableError, match="not there"):
        items(bucket)
