"""Sitemaps of every format, those that break off, and those that mean harm; robots.txt is not asked here."""

from __future__ import annotations

import gzip
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.errors import PermanentError
from worker.connectors.web.canonical import foldable
from worker.connectors.web.feed import entries_of
from worker.connectors.web.sitemap import Entry, moment, read_sitemap, versions

URL = "http://a.test/maps/sitemap.xml"
SPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:i="http://www.google.com/schemas/sitemap-image/1.1"'


def read(content: bytes, folder: Path) -> tuple[list[Entry], str]:
    """Entries, and what went wrong after them."""
    path = folder / "sitemap"
    path.write_bytes(content)
    found: list[Entry] = []
    try:
        for entry in read_sitemap(path, URL):
            found.append(entry)
    except PermanentError as error:
        return found, f"{error.code}: {error.cause}"
    return found, ""


def test_pages(tmp_path: Path) -> None:
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?><?xml-stylesheet href="x.xsl"?><urlset {SPACE}>'
        "<url><loc>\n http://a.test/a?x=1&amp;y=<!-- no -->2 \n</loc><lastmod>2024-01-02</lastmod>"
        "<i:image><i:loc>http://a.test/i.png</i:loc></i:image><priority>0.5</priority></url>"
        "<url><lastmod>2024-01-03T04:05:06+02:00</lastmod><loc><![CDATA[http://a.test/é]]></loc></url>"
        "<url><lastmod>2024-01-03</lastmod></url></urlset>"
    )
    expected = [
        Entry("page", "http://a.test/a?x=1&y=2", "2024-01-02"),
        Entry("page", "http://a.test/é", "2024-01-03T04:05:06+02:00"),
    ]
    for content in (text.encode(), gzip.compress(text.encode()), text.replace("UTF-8", "UTF-16").encode("utf-16")):
        assert read(content, tmp_path) == (expected, "")


def test_an_index_and_no_namespace(tmp_path: Path) -> None:
    text = b"<sitemapindex><sitemap><loc>http://a.test/1.xml.gz</loc><lastmod>2024</lastmod></sitemap></sitemapindex>"
    assert read(text, tmp_path) == ([Entry("sitemap", "http://a.test/1.xml.gz", "2024")], "")


def test_lines(tmp_path: Path) -> None:
    expected = [Entry("page", "http://a.test/a"), Entry("page", "https://a.test/b")]
    assert read(b"\xef\xbb\xbfhttp://a.test/a\r\n\r\nhttps://a.test/b", tmp_path) == (expected, "")
    assert read(gzip.compress(b"http://a.test/a\nhttps://a.test/b\n"), tmp_path) == (expected, "")
    found, error = read(b"http://a.test/a\nand so on\n", tmp_path)
    assert (found, "lines that are no addresses" in error) == (expected[:1], True)


def test_feeds(tmp_path: Path) -> None:
    rss = (
        b"<rss version='2.0'><channel><item><link>/a</link><pubDate>Tue, 10 Jun 2003 04:00:00 GMT</pubDate></item>"
        b"<item><guid isPermaLink='true'>http://a.test/b</guid></item><item><title>no link</title></item>"
        b"</channel></rss>"
    )
    atom = (
        b"<feed xmlns='http://www.w3.org/2005/Atom'><entry><link href='c'/><id>tag:1</id>"
        b"<updated>2003-12-13T18:30:02+01:00</updated><published>2001-01-01T00:00:00Z</published></entry></feed>"
    )
    assert read(rss, tmp_path) == (
        [
            Entry("page", "http://a.test/a", "2003-06-10T04:00:00+00:00"),
            Entry("page", "http://a.test/b", "http://a.test/b"),
        ],
        "",
    )
    assert read(atom, tmp_path) == ([Entry("page", "http://a.test/maps/c", "2003-12-13T17:30:02+00:00")], "")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"<html><body>Not found</body></html>", "it is a <html>"),
        (b"<!DOCTYPE html><html>", "DOCTYPE"),
        (b"not a sitemap", "lines that are no addresses"),
        (b"\x89PNG\r\n" + bytes(100_000), "no sitemap"),
        (b"\x1f\x8bnot gzip", "cannot be unpacked"),
        (b"<" * 100_000, "no sound XML"),
        (b"<urlset>" + b"<a>" * 100_000, "no sound XML"),
        (b"<rss>" + b"<a>" * 300_000, "too deep"),
    ],
)
def test_what_is_no_sitemap(content: bytes, said: str, tmp_path: Path) -> None:
    found, error = read(content, tmp_path)
    assert found == []
    assert said in error
    assert error.startswith(("sitemap_unusable: ", "feed_unusable: "))


@pytest.mark.parametrize("cut", [3, 30, 45])
def test_what_came_before_the_end_counts(cut: int, tmp_path: Path) -> None:
    whole = b"<urlset>" + b"".join(b"<url><loc>http://a.test/%d</loc></url>" % one for one in range(9)) + b"</urlset>"
    found, error = read(whole[:-cut], tmp_path)
    assert "no sound XML" in error
    assert len(found) == (9 if cut == 3 else 8)
    assert "breaks off" in read(gzip.compress(whole)[:-4], tmp_path)[1]


def test_entities_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("http://a.test/secret")
    laughs = "".join(f'<!ENTITY l{one} "{f"&l{one - 1};" * 10}">' for one in range(1, 9))
    for declaration in (
        f'<!DOCTYPE urlset [<!ENTITY x SYSTEM "{secret.as_uri()}">]>',
        f'<!DOCTYPE urlset [<!ENTITY l0 "http://a.test/">{laughs}<!ENTITY x "&l8;">]>',
        '<!DOCTYPE urlset SYSTEM "http://127.0.0.1:9/x.dtd">',
    ):
        found, error = read(f"{declaration}<urlset><url><loc>&x;</loc></url></urlset>".encode(), tmp_path)
        assert (found, error) == ([], "sitemap_unusable: the file is no sitemap: it begins with a DOCTYPE")
    assert read(b"<urlset><url><loc>&x;</loc></url></urlset>", tmp_path)[0] == []


def test_a_bomb(tmp_path: Path) -> None:
    begin = b"<urlset><url><loc>http://a.test/a</loc></url>"
    bomb = gzip.compress(begin + b" " * 60_000_000, 1)
    tracemalloc.start()
    found, error = read(bomb, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(bomb) < 300_000
    assert found == [Entry("page", "http://a.test/a")]
    assert error == "sitemap_unusable: the sitemap has more than 52,428,800 bytes"
    assert peak < 5_000_000


def test_the_most_entries(tmp_path: Path) -> None:
    entry = b"<url><loc>http://a.test/a</loc></url>"
    assert read(b"<urlset>" + entry * 50_000 + b"</urlset>", tmp_path)[1] == ""
    found, error = read(b"<urlset>" + entry * 50_001 + b"</urlset>", tmp_path)
    assert len(found) == 50_000
    assert "more than 50,000 entries" in error
    found, error = read(b"http://a.test/a\n" * 50_001, tmp_path)
    assert (len(found), "more than 50,000 entries" in error) == (50_000, True)


def test_an_address_without_end(tmp_path: Path) -> None:
    found, _ = read(b"<urlset><url><loc>http://a.test/" + b"x" * 1_000_000 + b"</loc></url></urlset>", tmp_path)
    assert sum(len(entry.location) for entry in found) <= 4_096
    assert [foldable(entry.location) for entry in found] in ([], [None])
    assert read(b"http://a.test/" + b"x" * 1_000_000, tmp_path)[0] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024", datetime(2024, 1, 1, tzinfo=UTC)),
        ("2024-03", datetime(2024, 3, 1, tzinfo=UTC)),
        ("2024-03-09", datetime(2024, 3, 9, tzinfo=UTC)),
        (" 2024-03-09T10:11Z ", datetime(2024, 3, 9, 10, 11, tzinfo=UTC)),
        ("2024-03-09T10:11:12.345+05:30", datetime(2024, 3, 9, 4, 41, 12, tzinfo=UTC)),
        ("2024-03-09T10:11:12-0800", datetime(2024, 3, 9, 18, 11, 12, tzinfo=UTC)),
        ("2024-03-09T10:11:12", datetime(2024, 3, 9, 10, 11, 12, tzinfo=UTC)),
        ("0001-01-01T00:00:00+10:00", None),
        ("2024-13-01", None),
        ("2024-02-30", None),
        ("yesterday", None),
        ("09/03/2024", None),
        ("", None),
    ],
)
def test_dates(text: str, expected: datetime | None) -> None:
    assert moment(text) == expected


def test_which_dates_are_believed() -> None:
    now = datetime(2024, 6, 1, 12, tzinfo=UTC)

    def said(*dates: str) -> list[str | None]:
        return versions([Entry("page", f"http://a.test/{number}", date) for number, date in enumerate(dates)], now)

    assert said("2024-05-01", "2024-06-01T11:59:00Z", "") == ["2024-05-01", "2024-06-01T11:59:00Z", None]
    assert said("2031-01-01", "soon", "2024-06-02") == [None, None, "2024-06-02"]
    assert said(*["2023-01-01"] * 5) == ["2023-01-01"] * 5, "all the same, as after a change of the template"
    stamps = [(now - timedelta(seconds=one)).isoformat() for one in range(5)]
    assert said(*stamps) == [None] * 5, "stamped when it was asked for"
    assert said(*stamps[:2]) == stamps[:2]


def test_a_feed_is_never_fetched_by_the_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "feed").write_bytes(
        b"<rss version='2.0'><channel><item><link>http://a.test/</link></item></channel></rss>"
    )
    monkeypatch.chdir(tmp_path)
    for data in (b"feed", b"http://127.0.0.1:9/feed", b"file:feed"):
        with pytest.raises(PermanentError, match="neither RSS nor Atom"):
            list(entries_of(data, URL))
