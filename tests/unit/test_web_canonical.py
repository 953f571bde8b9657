"""One spelling for each address, and which canonical addresses are believed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import PermanentError
from worker.connectors.web.canonical import canonical_of, fold, foldable
from worker.connectors.web.page import canonical_link, head_of, told_noindex


@pytest.mark.parametrize(
    ("url", "folded"),
    [
        ("HTTP://Example.ORG", "http://example.org/"),
        ("https://example.org:443/a", "https://example.org/a"),
        ("http://example.org:80/a", "http://example.org/a"),
        ("http://example.org:8080/a", "http://example.org:8080/a"),
        ("http://[::1]:8080/a", "http://[::1]:8080/a"),
        ("http://example.org./a", "http://example.org/a"),
        ("http://exämple.org/ä", "http://xn--exmple-cua.org/%C3%A4"),
        ("http://a.test/a/./b/../c", "http://a.test/a/c"),
        ("http://a.test/a/%2e%2E/c/..", "http://a.test/"),
        ("http://a.test/../../a", "http://a.test/a"),
        ("http://a.test/a/", "http://a.test/a/"),
        ("http://a.test//a", "http://a.test//a"),
        ("http://a.test/%7Eme/%2fx%2Fy", "http://a.test/~me/%2Fx%2Fy"),
        ("http://a.test/100%", "http://a.test/100%25"),
        ("http://a.test/100%zz", "http://a.test/100%25zz"),
        ("http://a.test/a b", "http://a.test/a%20b"),
        ("http://a.test/a?", "http://a.test/a"),
        ("http://a.test/a?#top", "http://a.test/a"),
        ("http://a.test/a?b=2&a=1", "http://a.test/a?b=2&a=1"),
        ("http://a.test/a?utm_source=x&UTM_Medium=y", "http://a.test/a"),
        ("http://a.test/a?b=2&fbclid=x&a=1&gclid", "http://a.test/a?b=2&a=1"),
        ("http://a.test/a?%75tm_source=x", "http://a.test/a"),
        ("http://a.test/a?id=utm_source", "http://a.test/a?id=utm_source"),
        ("http://a.test/a?q=a+b%20c", "http://a.test/a?q=a+b%20c"),
        ("http://a.test/a?x=1&&y=2&", "http://a.test/a?x=1&y=2"),
    ],
)
def test_folding(url: str, folded: str) -> None:
    assert fold(url) == folded


@given(st.text("ab/.%2eE?&=;utm_source#é +", max_size=30))
def test_folding_twice_changes_nothing(rest: str) -> None:
    folded = foldable(f"http://a.test/{rest}")
    assert folded is None or fold(folded) == folded


@pytest.mark.parametrize(
    "url", ["ftp://a.test/", "/a", "mailto:a@b.test", "http://u:p@a.test/", "http://a.test:22/", ""]
)
def test_nothing_to_fetch(url: str) -> None:
    with pytest.raises(PermanentError) as caught:
        fold(url)
    assert caught.value.code == "fetch_refused"
    assert foldable(url) is None


@pytest.mark.parametrize(
    ("href", "page", "found"),
    [
        ("http://a.test/x?utm_id=1", "http://a.test/x?ref=1", "http://a.test/x"),
        ("https://A.test/x", "http://a.test/y", "https://a.test/x"),
        (" http://b.test/x ", "http://a.test/x", "http://b.test/x"),
        ("http://c.test/x", "http://a.test/x", None),
        ("/x", "http://a.test/y", None),
        ("//a.test/x", "http://a.test/y", None),
        ("javascript:alert(1)", "http://a.test/y", None),
        ("http://a.test:99/x", "http://a.test/y", None),
        ("http://a.test/", "http://a.test/y", None),
        ("http://a.test", "http://a.test/blog/", None),
        ("http://a.test/", "http://a.test/?ref=1", "http://a.test/"),
        ("http://a.test/", "http://a.test/index.html", "http://a.test/"),
        ("", "http://a.test/y", None),
        (None, "http://a.test/y", None),
    ],
)
def test_which_canonical_addresses_are_believed(href: str | None, page: str, found: str | None) -> None:
    assert canonical_of(href, page, ("b.test",)) == found


@pytest.mark.parametrize(
    ("html", "canonical", "noindex"),
    [
        ("<head><link rel=canonical href='http://a.test/?a=1&amp;b=2'>", "http://a.test/?a=1&b=2", False),
        ("<link REL='alternate CANONICAL' href=x><link rel=canonical href=y>", "x", False),
        ("<head><script>'</head><body>'</script><link rel=canonical href=x>", "x", False),
        ("<head><!-- <link rel=canonical href=x> --></head><link rel=canonical href=y>", None, False),
        ("<body><link rel=canonical href=x><meta name=robots content=noindex>", None, False),
        ("<p>text<link rel=canonical href=x>", None, False),
        ("<meta name=ROBOTS content='NOFOLLOW,NoIndex'>", None, True),
        ("<meta name=robots content=none>", None, True),
        ("<meta name=gristmill content=noindex>", None, True),
        ("<meta name=otherbot content=noindex><meta name=robots content='index, nofollow'>", None, False),
        ("<meta name=description content='noindex'>", None, False),
        ("<![oops[<link rel=canonical href=x>", None, False),
        ("<link rel=canonical href=", None, False),
    ],
)
def test_what_a_head_says(html: str, canonical: str | None, noindex: bool, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        path.write_bytes(html.encode(encoding))
        head = head_of(path, "gristmill")
        assert (head.canonical, head.noindex) == (canonical, noindex)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (['<http://a.test/x>; rel="canonical"'], "http://a.test/x"),
        (["<http://a.test/s>; rel=preload; as=style, <http://a.test/x,y>;rel=canonical"], "http://a.test/x,y"),
        (['<http://a.test/x>; title="rel=canonical, <b>"', "</y>; rel='up'"], None),
        (["<http://a.test/x>; rel=next", '<http://a.test/y>; rel="shortlink canonical"'], "http://a.test/y"),
        (["nonsense", "<<>;rel="], None),
        ([], None),
    ],
)
def test_canonical_links_of_headers(values: list[str], found: str | None) -> None:
    assert canonical_link(values) == found


@pytest.mark.parametrize(
    ("values", "hidden"),
    [
        (["noindex"], True),
        (["noarchive, NOINDEX"], True),
        (["none"], True),
        (["gristmill: noindex"], True),
        (["otherbot: noindex"], False),
        (["otherbot: nofollow", "gristmill: noarchive, noindex"], True),
        (["max-snippet: 5, noindex"], True),
        (["unavailable_after: 25 Jun 2010 15:00:00 PST"], False),
        (["index, follow", ""], False),
        ([], False),
    ],
)
def test_what_robots_are_told_in_headers(values: list[str], hidden: bool) -> None:
    assert told_noindex(values, "gristmill") is hidden
