"""A web site on loopback: pages that can be edited, moved and deleted, sitemaps, a feed, and all that goes wrong.

Besides its pages (`/page/0.html` and on) it has, named in its sitemaps unless noted:

- `/nonce`: its HTML is another at each request, its text is not; it has no validators
- `/plain`: no validators
- `/duplicate?ref=7`: an address of `/page/1.html`, which it gives as its canonical one, in HTML
- `/print/2`: the same of `/page/2.html`, in a `Link` header
- `/hidden`, `/secret-header`: ask not to be indexed, in HTML and in a header
- `/private/1`: robots.txt does not allow it
- `/files/report.pdf`, `/files/notes.docx`, `/download`: documents, the last one with its name in a header
- not named: `/old` (301) and `/temp` (302) lead to `/page/3.html`; `/mixed` leads by 301 to `/mixed2`, and that by 302;
  `/temp-old` by 303 to `/old`
- not named either: `/loop`, `/status/404` and every other status, `/slow` (503 that asks for an hour), `/feed.xml`,
  `/sitemap.txt`, `/home-canonical` (gives the home page as its canonical address)
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from xml.sax.saxutils import escape

from tests.fakes.web_server import Answer, Call, web_server

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
FILLER = "The tide tables of the harbour are kept by the harbour master and printed each spring for the boats."
SITEMAP_SIZE = 200
ROBOTS = "User-agent: *\nDisallow: /private/\nCrawl-delay: 2\nSitemap: {base}/sitemap-index.xml\n"


@dataclass
class Page:
    """A page of the site.

    Attributes:
        modified: when it was last edited; sitemaps and headers say so.
    """

    title: str
    text: str
    modified: datetime
    media_type: str = "text/html; charset=utf-8"
    body: bytes | None = None
    head: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    validators: bool = True
    listed: bool = True

    def content(self) -> bytes:
        """Its bytes."""
        if self.body is not None:
            return self.body
        return (
            f"<!DOCTYPE html><html lang=en><head><title>{escape(self.title)}</title>{self.head}</head><body><nav>"
            f"<a href='/'>Home</a></nav><main><h1>{escape(self.title)}</h1><p>{escape(self.text)}</p><p>{FILLER}</p>"
            "</main></body></html>"
        ).encode()


class Site:
    """The site's state, to be changed by a test, and what was asked of it.

    Attributes:
        base: scheme, host and port.
        pages: by path, with the query.
        redirects: by path: status and target.
        statuses: what else than a page a path answers, with headers.
        robots: the text of robots.txt, `{base}` standing for the base; None: there is none.
        requests: how many came, by path.
        sent: bytes of bodies sent, by path.
        now: when an edit happens; later with each one.
    """

    def __init__(self, pages: int) -> None:
        self.base = ""
        self.robots: str | None = ROBOTS
        self.robots_status = 200
        self.requests: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.calls: list[Call] = []
        self.now = BEGIN + timedelta(days=200)
        self.redirects: dict[str, tuple[int, str]] = {
            "/old": (301, "/page/3.html"),
            "/temp": (302, "/page/3.html"),
            "/temp-old": (303, "/old"),
            "/mixed": (301, "/mixed2"),
            "/mixed2": (302, "/page/3.html"),
            "/loop": (302, "/loop2"),
            "/loop2": (302, "/loop"),
        }
        self.statuses: dict[str, tuple[int, dict[str, str]]] = {"/slow": (503, {"Retry-After": "3600"})}
        self.pages: dict[str, Page] = {
            f"/page/{number}.html": Page(
                f"Page {number}", f"What page {number} says about boat {number}.", BEGIN + timedelta(hours=number)
            )
            for number in range(pages)
        }
        self._nonces = itertools.count(1)

    def add_specials(self) -> None:
        """The paths that the module tells of; they are no pages of the count."""
        when = BEGIN + timedelta(days=100)
        one = self.pages["/page/1.html"]
        noindex = "<meta name=robots content='noindex, follow'>"
        office = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
        self.pages |= {
            "/": Page("Home", "Welcome to the harbour.", when),
            "/nonce": Page("Nonce", "The text stays the same.", when, validators=False),
            "/plain": Page("Plain", "A page without validators.", when, validators=False),
            "/duplicate?ref=7": Page(
                one.title, one.text, when, head=f"<link href='{self.base}/page/1.html' rel='nofollow Canonical'>"
            ),
            "/print/2": Page(
                "Page 2", "For printers.", when, headers={"Link": f'<{self.base}/page/2.html>; rel="canonical"'}
            ),
            "/home-canonical": Page(
                "Lost", "A page of its own.", when, head=f"<link rel=canonical href='{self.base}/'>", listed=False
            ),
            "/hidden": Page("Hidden", "Not for search.", when, head=noindex),
            "/secret-header": Page("Hidden", "Nor this.", when, headers={"X-Robots-Tag": "noarchive, NoIndex"}),
            "/private/1": Page("Private", "Not for robots.", when),
            "/files/report.pdf": Page("", "", when, "application/pdf", pdf("The annual report of the harbour.")),
            "/files/notes.docx": Page("", "", when, office, docx("Notes on the new pier.")),
            "/download": Page(
                "", "", when, office, docx("More."), headers={"Content-Disposition": 'attachment; filename="a b.docx"'}
            ),
        }

    def url(self, path: str) -> str:
        """The whole address of a path."""
        return self.base + path

    def edit(self, path: str, text: str) -> None:
        """Change what a page says."""
        self.now += timedelta(minutes=1)
        self.pages[path].text = text
        self.pages[path].modified = self.now

    def add(self, path: str, title: str, text: str) -> None:
        """A new page."""
        self.now += timedelta(minutes=1)
        self.pages[path] = Page(title, text, self.now)

    def delete(self, path: str, status: int = 404) -> None:
        """Take a page away, from the sitemaps as well."""
        self.now += timedelta(minutes=1)
        del self.pages[path]
        self.statuses[path] = (status, {})

    def move(self, path: str, to: str, status: int = 301) -> None:
        """Have a page at another address; the old one leads there."""
        self.now += timedelta(minutes=1)
        self.pages[to] = self.pages.pop(path)
        self.redirects[path] = (status, to)

    def reset(self) -> None:
        """Forget who came."""
        self.requests.clear()
        self.sent.clear()
        self.calls.clear()

    def listed(self) -> list[str]:
        """Paths that the sitemaps name."""
        return [path for path, page in self.pages.items() if page.listed]

    def answer(self, call: Call) -> Answer:
        """What the site says to a request; counted."""
        said = self._answer(call)
        assert isinstance(said.body, bytes)
        self.calls.append(call)
        self.requests[call.path] += 1
        self.sent[call.path] += len(said.body)
        return said

    def _answer(self, call: Call) -> Answer:
        path = call.path
        if path in self.redirects:
            status, target = self.redirects[path]
            return Answer(status, headers={"Location": target})
        if path in self.statuses:
            status, headers = self.statuses[path]
            return Answer(status, b"no", dict(headers))
        if path.startswith("/status/"):
            return Answer(int(path.rsplit("/", 1)[1]), b"no")
        if path == "/robots.txt":
            if self.robots is None:
                return Answer(404)
            return Answer(self.robots_status, self.robots.format(base=self.base).encode())
        if path == "/feed.xml":
            return self._validated(call, self.feed(), "application/rss+xml", self.now)
        if path == "/sitemap.txt":
            return Answer(200, "\n".join(map(self.url, self.listed())).encode(), {"Content-Type": "text/plain"})
        if path.startswith("/sitemap"):
            return self._sitemap(path)
        if path in self.pages:
            return self._page(call, self.pages[path])
        return Answer(404, b"no such page")

    def _page(self, call: Call, page: Page) -> Answer:
        body = page.content()
        if call.path == "/nonce":
            nonce = next(self._nonces)
            body = body.replace(b"</head>", b"<script nonce=n%d>var seen = %d;</script></head>" % (nonce, nonce))
        if not page.validators:
            return Answer(200, body, {"Content-Type": page.media_type, **page.headers})
        said = self._validated(call, body, page.media_type, page.modified)
        said.headers |= page.headers
        return said

    def _validated(self, call: Call, body: bytes, media_type: str, modified: datetime) -> Answer:
        """RFC 9110, 13.2.2: `If-Modified-Since` counts only where there is no `If-None-Match`."""
        etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        headers = {"ETag": etag, "Last-Modified": format_datetime(modified, usegmt=True), "Content-Type": media_type}
        wanted, since = call.headers.get("if-none-match"), call.headers.get("if-modified-since")
        if wanted == etag or (wanted is None and since and parsedate_to_datetime(since) >= modified):
            return Answer(304, b"", headers)
        return Answer(200, body, headers)

    def _sitemap(self, path: str) -> Answer:
        """`/sitemap-index.xml` names `/sitemap-<n>.xml.gz`, of `SITEMAP_SIZE` pages each."""
        listed = self.listed()
        parts = range(0, len(listed), SITEMAP_SIZE)
        namespace = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
        if path == "/sitemap-index.xml":
            names = "".join(
                f"<sitemap><loc>{self.base}/sitemap-{number}.xml.gz</loc></sitemap>" for number in range(len(parts))
            )
            return Answer(200, f"<sitemapindex {namespace}>{names}</sitemapindex>".encode())
        number = path.removeprefix("/sitemap-").removesuffix(".xml.gz")
        if not number.isdigit() or int(number) >= len(parts):
            return Answer(404)
        begin = parts[int(number)]
        urls = "".join(
            f"<url><loc>{escape(self.url(one))}</loc><lastmod>{self.pages[one].modified.isoformat()}</lastmod></url>"
            for one in listed[begin : begin + SITEMAP_SIZE]
        )
        text = f'<?xml version="1.0" encoding="UTF-8"?><urlset {namespace}>{urls}</urlset>'
        return Answer(200, gzip.compress(text.encode(), mtime=0), {"Content-Type": "application/gzip"})

    def feed(self) -> bytes:
        """RSS with the five pages edited last."""
        last = sorted(self.pages, key=lambda path: self.pages[path].modified)[-5:]
        items = "".join(
            f"<item><title>{escape(self.pages[path].title)}</title><link>"
            f"{escape(self.url(path) + ('&' if '?' in path else '?') + 'utm_source=feed')}</link>"
            f"<guid>{escape(path)}</guid><pubDate>{format_datetime(self.pages[path].modified)}</pubDate></item>"
            for path in reversed(last)
        )
        return f"<rss version='2.0'><channel><title>News</title>{items}</channel></rss>".encode()


@contextmanager
def site(pages: int = 500, *, specials: bool = True) -> Iterator[Site]:
    """A site that is served until the end of the `with`."""
    made = Site(pages)
    with web_server(made.answer) as server:
        made.base = f"http://127.0.0.1:{server.port}"
        if specials:
            made.add_specials()
        yield made


def docx(text: str) -> bytes:
    """A Word document of one paragraph."""
    import docx as office

    made = office.Document()
    made.add_paragraph(text)
    file = io.BytesIO()
    made.save(file)
    return file.getvalue()


def pdf(text: str) -> bytes:
    """A PDF of one line."""
    stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out = bytearray(b"%PDF-1.4\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)
    return bytes(out)
