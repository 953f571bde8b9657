"""From bytes to text: which character set a file is in, and whether it is text at all.

Order: byte order mark, UTF-16/32 without one (by the pattern of NULs), strict UTF-8, Windows-1252 where the
result looks like a Western European language, then charset-normalizer over the whole file. Windows-1252
comes before the statistical guess because that guess confuses it with its neighbours on short texts (`è`
read as `č`).
"""

from __future__ import annotations

import codecs
import unicodedata

from pipelines.errors import PermanentError

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WESTERN = frozenset("àâäáãåæçéèêëíîïñóôöõøœúùûüßÀÂÄÁÃÅÆÇÉÈÊËÍÎÏÑÓÔÖÕØŒÚÙÛÜ«»“”„‘’‚…–—•·€£§°©®™º²³½¿¡\u00a0\u00ad")
_TEXT_CONTROLS = frozenset("\t\n\r\f\v\b\x1a\x1b")
_MAX_CONTROL_SHARE = 0.02
_MAX_WESTERN_SHARE = 0.3


def decode(data: bytes, declared: str | None = None) -> tuple[str, str]:
    """Decode a text file.

    Args:
        data: the whole file.
        declared: a character set the file itself names (an HTML `meta` element), tried after UTF-8.

    Returns:
        The text, without byte order mark, and the Python name of its encoding.

    Raises:
        PermanentError: `unsupported_format` where the bytes are not text.
    """
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return _checked(data.decode(encoding, errors="replace"), encoding)
    wide = _wide_encoding(data)
    if wide is not None:
        return _checked(data.decode(wide, errors="replace"), wide)
    for encoding in ("utf-8", *_known(declared)):
        try:
            return _checked(data.decode(encoding), encoding)
        except UnicodeDecodeError:
            continue
    if _control_share_of(data) > _MAX_CONTROL_SHARE * 5:
        raise _not_text()
    western = data.decode("cp1252", errors="replace")
    if _looks_western(western):
        return western, "cp1252"
    from charset_normalizer import from_bytes

    best = from_bytes(data).best()
    if best is None:
        return _checked(western, "cp1252")
    return _checked(str(best), best.encoding)


def is_text(data: bytes) -> bool:
    """Whether these bytes (a whole file or its head) can be read as text in some character set."""
    try:
        decode(data)
    except PermanentError:
        return False
    return True


def _known(declared: str | None) -> tuple[str, ...]:
    if not declared:
        return ()
    try:
        name = codecs.lookup(declared).name
    except (LookupError, ValueError):
        return ()
    # Browsers read pages that say Latin-1 as Windows-1252, so authors rely on it.
    return ("cp1252",) if name in {"iso8859-1", "ascii"} else (name,)


def _wide_encoding(data: bytes) -> str | None:
    """UTF-16/32 without a byte order mark: NULs in every other byte (or three of four), few elsewhere."""
    head = data[: 4096 - 4096 % 4]
    if len(head) < 8 or b"\0" not in head:
        return None
    size = len(head) // 4 or 1
    nul = [head[offset::4].count(0) / size for offset in range(4)]
    if nul[0] < 0.1 and min(nul[1:]) > 0.9:
        return "utf-32-le"
    if nul[3] < 0.1 and min(nul[:3]) > 0.9:
        return "utf-32-be"
    even, odd = (nul[0] + nul[2]) / 2, (nul[1] + nul[3]) / 2
    if odd > 0.4 and even < 0.05:
        return "utf-16-le"
    if even > 0.4 and odd < 0.05:
        return "utf-16-be"
    return None


def _looks_western(text: str) -> bool:
    others = [char for char in text if ord(char) > 0x7F]
    letters = sum(char.isalpha() for char in text) or 1
    return all(char in _WESTERN for char in others) and len(others) / letters < _MAX_WESTERN_SHARE


def _control_share_of(data: bytes) -> float:
    head = data[:65536]
    return sum(byte < 32 and chr(byte) not in _TEXT_CONTROLS for byte in head) / (len(head) or 1)


def _checked(text: str, encoding: str) -> tuple[str, str]:
    head = text[:65536]
    bad = sum(
        char == "\ufffd" or (char not in _TEXT_CONTROLS and unicodedata.category(char) in {"Cc", "Cn", "Co", "Cs"})
        for char in head
    )
    if head and bad / len(head) > _MAX_CONTROL_SHARE:
        raise _not_text()
    return text.removeprefix("\ufeff"), encoding


def _not_text() -> PermanentError:
    return PermanentError(
        "unsupported_format",
        "the file is neither a known document format nor text",
        "convert it to PDF, HTML or plain text",
    )
