"""A web page or document behind a URL, fetched to this machine's disk for the time of one ingest."""

from __future__ import annotations

import email.message
import re
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from mimetypes import MimeTypes
from pathlib import Path, PurePath
from urllib.parse import unquote

import httpcore
import httpx

from pipelines.errors import GristmillError, PermanentError, RetryableError, UnavailableError
from worker.addresses import Resolve, check_url, parse_url, refused, resolve
from worker.exchange import Deadline, Received, exchange, header, headers, retry_after
from worker.settings import Settings
from worker.unpacking import Unpacking

__all__ = ["Page", "Reply", "check_url", "fetched", "request"]

MAX_REDIRECTS = 5
REDIRECTS = (301, 302, 303, 307, 308)
ACCEPT = "text/html, application/xhtml+xml, application/pdf;q=0.9, */*;q=0.8"

_TYPES = MimeTypes()  # what Python knows, without the machine's own files
_TYPES.add_type("text/markdown", ".md")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_UNSAFE = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')


@dataclass(frozen=True, slots=True)
class Page:
    """What a URL gave.

    Attributes:
        path: a file that is gone after the `with`.
        name: what it is called, with a suffix that hints at its format.
        url: where it came from in the end, after redirects.
        content_type: as the server says, in lower case and without parameters; empty where it says nothing.
    """

    path: Path
    name: str
    url: str
    content_type: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What one request gave: a body in the file that was named, a redirect, or word that nothing has changed.

    Attributes:
        url: that was asked.
        location: where it redirects to; None where it does not.
        name: as in `Page`.
        content_type: as in `Page`.
        etag: validator of the body, for `If-None-Match`; empty where there is none.
        modified: the other one, for `If-Modified-Since`.
        robots: values of `X-Robots-Tag`.
        links: values of `Link`.
    """

    url: httpx.URL
    status: int
    location: httpx.URL | None = None
    name: str = ""
    content_type: str = ""
    etag: str = ""
    modified: str = ""
    robots: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


@contextmanager
def fetched(url: str, settings: Settings, *, resolve: Resolve = resolve) -> Iterator[Page]:
    """Fetch a URL into a file that is removed afterwards.

    Up to five redirects are followed, each checked like the first address. The limits are the settings' `max_bytes`,
    also for what is unpacked, and `fetch_seconds` for everything together. No cookie or credential is ever sent.

    Raises:
        PermanentError, RetryableError, UnavailableError: as `request`.
    """
    folder = settings.home / "spool"  # its sweep clears away what a killed worker leaves
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    deadline = Deadline(settings.fetch_seconds)
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as file:
        path = Path(file.name)
    try:
        current = parse_url(url)
        for _ in range(MAX_REDIRECTS + 1):
            reply = request(current, path, settings, deadline, resolve=resolve)
            if reply.location is None:
                yield Page(path, reply.name, str(reply.url), reply.content_type)
                return
            current = reply.location
        raise too_many_redirects(current)
    finally:
        path.unlink(missing_ok=True)


def request(
    url: httpx.URL,
    path: Path,
    settings: Settings,
    deadline: Deadline,
    *,
    validators: Mapping[str, str] | None = None,
    agent: str | None = None,
    max_bytes: int | None = None,
    cut: bool = False,
    resolve: Resolve = resolve,
    received: Received | None = None,
) -> Reply:
    """One GET request, its body written to a file. No redirect is followed.

    Args:
        url: as `parse_url` gives it.
        path: of the file; written only where there is a body.
        validators: conditional headers; with them, 304 is an answer as any.
        agent: what to call ourselves, unless by our own name.
        max_bytes: most of the body, packed and unpacked; unset: the settings'.
        cut: take the first `max_bytes` of a larger body instead of refusing it.
        received: counts what comes in.

    Raises:
        PermanentError: `fetch_refused` (the address may not be reached), `fetch_gone` (404, 410), `fetch_denied`
            (401, 403), `fetch_untrusted` (its certificate), `too_large`, `fetch_unusable` (any other answer that
            will not get better).
        UnavailableError: `fetch_unavailable`: the server asks to wait (429, 503).
        RetryableError: `fetch_failed`: it cannot be reached, is too slow, or has an error of its own.
    """
    limit = settings.max_bytes if max_bytes is None else max_bytes
    sent = {"Accept": ACCEPT, "Accept-Encoding": "gzip", **(validators or {})}
    if agent is not None:
        sent["User-Agent"] = agent
    with exchange("GET", url, settings, deadline, headers=sent, resolve=resolve, received=received) as response:
        status = response.status
        if status in REDIRECTS:
            return Reply(url, status, location=_redirect(url, header(response, "location")))
        not_modified = status == 304 and bool(validators)
        if status not in (200, 203) and not not_modified:
            raise _failure(url, response)
        if not not_modified:
            length = header(response, "content-length") or ""
            if not cut and length.isascii() and length.isdigit() and int(length[:18]) > limit:
                raise _too_large(limit)
            with path.open("wb") as file:
                for piece in _body(url, response, limit, cut):
                    file.write(piece)
        content_type = (header(response, "content-type") or "").partition(";")[0].strip().lower()
        return Reply(
            url,
            status,
            name=page_name(str(url), header(response, "content-disposition"), content_type),
            content_type=content_type,
            etag=header(response, "etag") or "",
            modified=header(response, "last-modified") or "",
            robots=tuple(headers(response, "x-robots-tag")),
            links=tuple(headers(response, "link")),
        )


def too_many_redirects(url: httpx.URL) -> PermanentError:
    """The error of an address that leads on and on."""
    return PermanentError(
        "fetch_unusable", f"{url.host} redirects more than {MAX_REDIRECTS} times", "give the final address"
    )


def _redirect(url: httpx.URL, location: str | None) -> httpx.URL:
    if not location:
        raise PermanentError("fetch_unusable", f"{url.host} redirects without saying where", "give another address")
    if _SCHEME.match(location):
        return parse_url(location)
    try:
        return parse_url(str(url.join(location)))
    except (httpx.InvalidURL, ValueError) as error:
        raise refused(f"{url.host} redirects to something that is not a URL") from error


def _body(url: httpx.URL, response: httpcore.Response, limit: int, cut: bool) -> Iterator[bytes]:
    """The body, unpacked; counted packed and unpacked."""
    packed = (header(response, "content-encoding") or "identity").strip().lower()
    if packed not in ("identity", "gzip", "x-gzip", "deflate"):
        raise PermanentError("fetch_unusable", f"{url.host} answers in the encoding {packed[:40]!r}", "")
    unpacking = None if packed == "identity" else Unpacking()
    came = gave = 0
    for piece in response.iter_stream():
        came += len(piece)
        for out in [piece] if unpacking is None else _unpacked(url, unpacking, piece):
            gave += len(out)
            if max(came, gave) > limit:
                if not cut:
                    raise _too_large(limit)
                yield out[: max(limit - (gave - len(out)), 0)]
                return
            yield out
    if unpacking is not None and came and not unpacking.whole:
        raise RetryableError(
            "fetch_failed", f"{url.host} broke off in the middle of a {packed} body", "try again later"
        )


def _unpacked(url: httpx.URL, unpacking: Unpacking, piece: bytes) -> Iterator[bytes]:
    try:
        yield from unpacking.unpack(piece)
    except zlib.error as error:
        raise RetryableError("fetch_failed", f"{url.host} sent a damaged body", "try again later") from error


def _failure(url: httpx.URL, response: httpcore.Response) -> GristmillError:
    status = response.status
    said = f"{url.host} answers {status}"
    if status in (404, 410):
        return PermanentError("fetch_gone", f"{said}: there is no such page", "correct the address, or delete it")
    if status in (401, 403):
        return PermanentError(
            "fetch_denied", f"{said}: it may not be read", "make it readable, or send the file itself"
        )
    if status in (429, 503):
        return UnavailableError(
            "fetch_unavailable",
            f"{said}: it asks to wait",
            "nothing: it is tried again",
            retry_after=retry_after(response),
        )
    if status >= 500 or status in (408, 425):
        return RetryableError("fetch_failed", f"{said}: an error of its own", "try again later")
    return PermanentError("fetch_unusable", f"{said}, which is no page", "try the address in a browser")


def _too_large(limit: int) -> PermanentError:
    return PermanentError(
        "too_large",
        f"the page has more than the {limit:,} bytes allowed",
        "raise GRISTMILL_MAX_BYTES or send a smaller file",
    )


def page_name(url: str, disposition: str | None, content_type: str) -> str:
    """What to call a page: as the server says, else the last part of the path, else the host.

    A suffix by the content type is added where the name has none that means a format (`report.php`, `index`).
    """
    name = _named_by(disposition) if disposition else ""
    parsed = httpx.URL(url)
    name = name or _plain(unquote(parsed.path).rstrip("/").rsplit("/", 1)[-1])
    if not name:
        return parsed.host + (_TYPES.guess_extension(content_type) or "")
    if _TYPES.guess_type(name, strict=False)[0] is None:
        name += _TYPES.guess_extension(content_type) or ""
    return name


def _named_by(disposition: str) -> str:
    message = email.message.Message()
    message["Content-Disposition"] = re.sub(r"[\r\n]", " ", disposition)
    try:
        return _plain(message.get_filename("") or "")
    except ValueError:  # in an encoding that is none
        return ""


def _plain(name: str) -> str:
    """A bare file name: no folders, no characters that a file system or a log would stumble over."""
    bare = re.split(r"[/\\]", name)[-1]
    bare = _UNSAFE.sub("_", bare.encode("utf-8", "replace").decode("utf-8")).strip(" .")
    if len(bare) > 120:
        suffix = PurePath(bare).suffix[:16]
        bare = bare[: 120 - len(suffix)] + suffix
    return bare
