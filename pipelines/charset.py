"""From bytes to text: which character set a file is in, and whether it is text at all.

Order: byte order mark, UTF-16/32 without one (by the pattern of NULs), a declared set that is all ASCII bytes
(ISO-2022-JP), strict UTF-8, the declared set, Windows-1252 where the result looks like a Western European
language, Shift-JIS where it looks like Japanese, then chardet over the lines that are not ASCII. The rules come
before the statistical guess because that guess errs on short texts (`è` read as `č`).
"""

from __future__ import annotations

import codecs
import re
import string
import unicodedata

from pipelines.errors import PermanentError

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Without õ: in Windows-1252 it is what a Hungarian ő of Windows-1250 would look like.
_WESTERN = frozenset("àâäáãåæçéèêëíîïñóôöøœúùûüßÀÂÄÁÃÅÆÇÉÈÊËÍÎÏÑÓÔÖØŒÚÙÛÜ«»“”„‘’‚…–—•·€£§°©®™º²³½¿¡\u00a0\u00ad")
# A sign where none stands in a word: `Za¿ó³æ` is Polish in the wrong set.
_MISPLACED = re.compile(r"[^\W\d_][^\w\s\x00-\x7f’‘·\u00ad–—…][^\W\d_]|[^\W\d_][¿¡£]|[³²§£½][^\W\d_]")
_SEVEN_BIT = ("iso2022", "hz", "utf-7")
_ESCAPED_JAPANESE = re.compile(rb"\x1b\$[@B][\x21-\x7e\s]++\x1b\([BJ]")
# Hiragana, katakana, the kanji of level 1 and their punctuation, as pairs of bytes; nothing of it is a letter
# beside another in Windows-1252.
_JAPANESE = re.compile(
    rb"(?:\x81[\x41-\x7e\x80-\xac]|\x82[\x4f-\x58\x9f-\xf1]|\x83[\x40-\x7e\x80-\x96]|\x88[\x9f-\xfc]"
    rb"|[\x89-\x97][\x40-\x7e\x80-\xfc]|\x98[\x40-\x72])"
)
_BESIDE_LETTER = re.compile(rb"[A-Za-z]" + _JAPANESE.pattern + rb"|" + _JAPANESE.pattern + rb"[A-Za-z]")
_MAX_BESIDE_LETTER = 0.2
_EBCDIC = "".join((string.ascii_letters, string.digits, string.punctuation, " \r\n\t\x85")).encode("cp500")
_SAMPLE = 65536
_GUESSES = (
    "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874",
    "iso8859-2", "iso8859-5", "iso8859-6", "iso8859-7", "iso8859-8", "iso8859-9", "koi8-r", "koi8-u",
    "cp437", "cp737", "cp850", "cp852", "cp866", "mac-roman", "mac-cyrillic",
    "cp932", "euc-jp", "gb18030", "big5", "cp949",
)  # fmt: skip
_TEXT_CONTROLS = frozenset("\t\n\r\f\v\b\x1a\x1b")
_MAX_CONTROL_SHARE = 0.02
_MAX_WESTERN_SHARE = 0.3


def decode(data: bytes, declared: str | None = None) -> tuple[str, str]:
    """Decode a text file.

    Args:
        data: the whole file.
        declared: a character set that the file names (an HTML `meta` element), tried after UTF-8.

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
    named = _known(declared)
    if _ESCAPED_JAPANESE.search(data[:_SAMPLE]):
        named = ("iso2022_jp", "iso2022_jp_ext", *named)
    first = tuple(name for name in named if name.startswith(_SEVEN_BIT))
    for encoding in (*first, "utf-8", *named):
        try:
            return _checked(data.decode(encoding), encoding)
        except UnicodeDecodeError:
            continue
    if _looks_ebcdic(data):
        return _checked(data.decode("cp500"), "cp500")
    if _control_share_of(data) > _MAX_CONTROL_SHARE * 5:
        raise _not_text()
    western = data.decode("cp1252", errors="replace")
    if _looks_western(western):
        return western, "cp1252"
    if _looks_japanese(data):
        return _checked(data.decode("cp932", errors="replace"), "cp932")
    return _guessed(data)


def _guessed(data: bytes) -> tuple[str, str]:
    import chardet

    # A file that is ASCII for its first pages would be guessed from nothing.
    lines = [line for line in data.splitlines() if not line.isascii()]
    sample = b"\n".join(lines)[:_SAMPLE]
    guesses = chardet.detect_all(sample, ignore_threshold=True, include_encodings=_GUESSES)
    encodings = [codecs.lookup(guess["encoding"]).name for guess in guesses if guess["encoding"]]
    for encoding in encodings:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if not _bad_share(text):
            return text, encoding
    encoding = encodings[0] if encodings else "cp1252"
    return _checked(data.decode(encoding, errors="replace"), encoding)


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
    if not all(char in _WESTERN for char in others) or len(others) / letters >= _MAX_WESTERN_SHARE:
        return False
    return _MISPLACED.search(text) is None


def _looks_ebcdic(data: bytes) -> bool:
    """Letters, digits and their commonest signs where EBCDIC has them, and its blank between the words."""
    head = data[:_SAMPLE]
    usual = len(head) - len(head.translate(None, _EBCDIC))
    return head.count(0x40) > len(head) * 0.05 and usual > len(head) * 0.8 and not head.isascii()


def _looks_japanese(data: bytes) -> bool:
    """Shift-JIS of common characters only, not taken from between Latin letters."""
    high = sum(byte > 0x7F for byte in data[:_SAMPLE])
    pairs = _JAPANESE.findall(data[:_SAMPLE])
    if not pairs or sum(pair[1] > 0x7F for pair in pairs) + len(pairs) < high:
        return False
    return len(_BESIDE_LETTER.findall(data[:_SAMPLE])) <= len(pairs) * _MAX_BESIDE_LETTER


def _control_share_of(data: bytes) -> float:
    head = data[:65536]
    return sum(byte < 32 and chr(byte) not in _TEXT_CONTROLS for byte in head) / (len(head) or 1)


def _checked(text: str, encoding: str) -> tuple[str, str]:
    if _bad_share(text) > _MAX_CONTROL_SHARE:
        raise _not_text()
    return text.removeprefix("\ufeff"), encoding


def _bad_share(text: str) -> float:
    """The share of characters that no text holds: controls, unassigned ones, those that could not be decoded."""
    head = text[:_SAMPLE]
    bad = sum(
        char == "\ufffd" or (char not in _TEXT_CONTROLS and unicodedata.category(char) in {"Cc", "Cn", "Co", "Cs"})
        for char in head
    )
    return bad / (len(head) or 1)


def _not_text() -> PermanentError:
    return PermanentError(
        "unsupported_format",
        "the file is neither a known document format nor text",
        "convert it to PDF, HTML or plain text",
    )
