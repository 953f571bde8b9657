"""One spelling for each web address, so that one page is one document.

Sources: RFC 3986, section 6.2 (case, percent-encoding, dot segments, default ports), and for what is left out of the
query the documents of those who put it there: it tells who came by which link, never what the page shows.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import urlsplit

import httpx

from pipelines.errors import PermanentError
from worker.addresses import parse_url

TRACKING = frozenset(
    {
        "_branch_match_id", "_ga", "_gac", "_gl", "_hsenc", "_hsmi", "_ke", "_kx", "_openstat", "dclid", "epik",
        "fbclid", "gad_campaignid", "gad_source", "gbraid", "gclid", "gclsrc", "igsh", "igshid", "irclickid",
        "li_fat_id", "mc_cid", "mc_eid", "mkt_tok", "ml_subscriber", "ml_subscriber_hash", "msclkid", "oly_anon_id",
        "oly_enc_id", "rb_clickid", "s_cid", "sc_cid", "srsltid", "ttclid", "twclid", "vero_conv", "vero_id", "wbraid",
        "wickedid", "yclid", "ysclid", "zanpid",
    }
)  # fmt: skip
"""Parameters of the query that say where a reader came from."""
TRACKING_PREFIXES = ("utm_", "mtm_", "pk_", "piwik_", "hsa_")

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})?")
_HOME = re.compile(r"/(?:(?:index|default|home)(?:\.[a-z]{1,5})?/?)?", re.IGNORECASE)


def fold(url: str) -> str:
    """The normal form of an address.

    Scheme and host in lower case, no default port, no fragment, dot segments resolved, percent-encoding only where it
    is needed and in capitals, tracking parameters and an empty query left out. The order of the parameters, a slash
    at the end and everything else stay as they are: servers may tell them apart. Folding twice changes nothing.

    Raises:
        PermanentError: `fetch_refused`: it is not an address that could be fetched.
    """
    parsed = parse_url(url)
    path, mark, query = parsed.raw_path.decode("ascii").partition("?")
    path = _without_dots(_normal_escapes(path)) or "/"
    kept = [part for part in _normal_escapes(query).split("&") if part and not _tracks(part)] if mark else []
    target = path + ("?" + "&".join(kept) if kept else "")
    return f"{parsed.scheme}://{parsed.netloc.decode('ascii')}{target}"


def canonical_of(href: str | None, page: str, hosts: Collection[str] = ()) -> str | None:
    """The address that a page gives as its own, in normal form; None where what it says is not to be believed.

    Source: RFC 6596. Only an absolute http or https address is taken, on the page's host or one of `hosts`. Many
    sites name their home page on all pages by mistake, so only a home page may do that.

    Args:
        href: of `rel="canonical"`.
        page: the address that it was read from.
    """
    href = (href or "").strip()
    if not href.lower().startswith(("http://", "https://")) or not _may_be_fetched(href):
        return None
    found = fold(href)
    there, here = urlsplit(found), urlsplit(page)
    if there.hostname != here.hostname and there.hostname not in hosts:
        return None
    if there.path == "/" and not there.query and not _HOME.fullmatch(here.path):
        return None
    return found


def foldable(url: str) -> str | None:
    """As `fold`, for addresses out of documents of others: None where there is nothing to fetch."""
    return fold(url.strip()) if _may_be_fetched(url.strip()) else None


def _may_be_fetched(url: str) -> bool:
    try:
        parse_url(url)
    except PermanentError:
        return False
    return True


def host_of(url: httpx.URL | str) -> str:
    """Host and port, as far as it is not the default one."""
    return urlsplit(str(url)).netloc


def _tracks(part: str) -> bool:
    name = part.partition("=")[0].lower()
    return name in TRACKING or name.startswith(TRACKING_PREFIXES)


def _normal_escapes(text: str) -> str:
    def normal(found: re.Match[str]) -> str:
        if found[1] is None:
            return "%25"
        byte = int(found[1], 16)
        return chr(byte) if byte in _UNRESERVED else f"%{byte:02X}"

    return _ESCAPE.sub(normal, text)


def _without_dots(path: str) -> str:
    """RFC 3986, section 5.2.4."""
    out: list[str] = []
    parts = path.split("/")
    for part in parts[1:]:
        if part == "..":
            out[-1:] = []
        elif part != ".":
            out.append(part)
    if parts[-1] in (".", ".."):
        out.append("")
    return "/" + "/".join(out)
