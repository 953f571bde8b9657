"""What a file is, by its content. The name only refines kinds that are all text (`.md`, `.csv`, `.eml`)."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path, PurePath
from typing import BinaryIO

from pipelines.charset import decode
from pipelines.errors import PermanentError

PDF = "application/pdf"
TEXT = "text/plain"
MARKDOWN = "text/markdown"
HTML = "text/html"
CSV = "text/csv"
TSV = "text/tab-separated-values"
JSON = "application/json"
XML = "application/xml"
CODE = "text/x-source"
EMAIL = "message/rfc822"
RTF = "application/rtf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
ODT = "application/vnd.oasis.opendocument.text"
ODS = "application/vnd.oasis.opendocument.spreadsheet"
ODP = "application/vnd.oasis.opendocument.presentation"
EPUB = "application/epub+zip"
DOC = "application/msword"
XLS = "application/vnd.ms-excel"
PPT = "application/vnd.ms-powerpoint"
XLSB = "application/vnd.ms-excel.sheet.binary.macroenabled.12"
MSG = "application/vnd.ms-outlook"
ZIP = "application/zip"
MBOX = "application/mbox"
OLE = "application/x-ole-storage"
ENCRYPTED_OFFICE = "application/x-encrypted-office"
BROKEN = "application/x-broken"
UNKNOWN = "application/octet-stream"

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"II+\0", "image/tiff"),
    (b"MM\0+", "image/tiff"),
    (b"{\\rtf", RTF),
    (b"\x1f\x8b", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\0", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"\x7fELF", "application/x-executable"),
    (b"%!PS", "application/postscript"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"ID3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"\x1aE\xdf\xa3", "video/x-matroska"),
)
_FTYP = {b"heic": "image/heic", b"heix": "image/heic", b"mif1": "image/heic", b"avif": "image/avif"}
OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_BY_SUFFIX = {
    ".md": MARKDOWN,
    ".markdown": MARKDOWN,
    ".mdown": MARKDOWN,
    ".csv": CSV,
    ".tsv": TSV,
    ".tab": TSV,
    ".json": JSON,
    ".jsonl": JSON,
    ".ndjson": JSON,
    ".htm": HTML,
    ".html": HTML,
    ".xhtml": HTML,
    ".xml": XML,
    ".eml": EMAIL,
    ".mht": EMAIL,
    ".mhtml": EMAIL,
} | dict.fromkeys(
    (
        ".py", ".js", ".ts", ".tsx", ".jsx", ".java", ".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".go",
        ".rs", ".rb", ".php", ".sh", ".bash", ".ps1", ".sql", ".r", ".kt", ".swift", ".scala", ".lua",
        ".pl", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".css", ".scss", ".tf", ".proto",
        ".graphql",
    ),
    CODE,
)  # fmt: skip
SUFFIXES = {
    PDF: ".pdf",
    DOCX: ".docx",
    PPTX: ".pptx",
    XLSX: ".xlsx",
    DOC: ".doc",
    PPT: ".ppt",
    XLS: ".xls",
    ODT: ".odt",
    ODS: ".ods",
    ODP: ".odp",
    EPUB: ".epub",
    MSG: ".msg",
    RTF: ".rtf",
    HTML: ".html",
    TEXT: ".txt",
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/tiff": ".tif",
}
"""What to name a file whose name does not tell its kind."""
_NEVER_TEXT = frozenset(
    {
        ".pdf", ".docx", ".pptx", ".xlsx", ".odt", ".ods", ".odp", ".epub", ".msg", ".png", ".jpg", ".jpeg", ".tif",
        ".tiff", ".webp", ".gif", ".bmp",
    }
)  # fmt: skip
_HTML_START = re.compile(
    # Possessive: a run of comments could else be parted in any number of ways, and all would be tried.
    r"^\s*+(?:<\?xml[^>]*+>\s*+)?+(?:<!--(?>.*?-->)\s*+)*+(?:<!doctype\s+html|<html|<head\b|<body\b)",
    re.IGNORECASE | re.DOTALL,
)
_XML_START = re.compile(r"^\s*<\?xml\b", re.IGNORECASE)
_HEADER = re.compile(
    r"^(?:return-path|received|date|from|to|cc|subject|mime-version|message-id|content-type|delivered-to|reply-to"
    r"|x-[\w-]+|dkim-signature|authentication-results|content-transfer-encoding|references|in-reply-to|sender):",
    re.IGNORECASE,
)
_ANY_HEADER = re.compile(r"^[A-Za-z][\w-]*:")
_HEAD = 65536


def sniff(path: Path, name: str | None = None) -> str:
    """Tell the media type of a file by its content.

    Args:
        path: a readable regular file.
        name: the name the file is known by, where `path` is a temporary one; used only to tell text formats
        apart.

    Returns:
        A media type; `application/octet-stream` for bytes that are neither a known format nor text, and
        `application/x-broken` for what is not what its beginning or its name promises.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD)
    suffix = PurePath(name or path.name).suffix.lower()
    binary = sniff_bytes(head)
    if binary == ZIP:
        return _zip_kind(path)
    if binary == OLE:
        return _ole_kind(path)
    if binary is not None:
        return binary
    return _text_kind(head, suffix)


def sniff_content(data: bytes, name: str) -> str:
    """The same for a whole file that is held in memory."""
    binary = sniff_bytes(data)
    if binary == ZIP:
        return _zip_kind(io.BytesIO(data))
    if binary == OLE:
        return _ole_kind(io.BytesIO(data))
    return binary or _text_kind(data[:_HEAD], PurePath(name).suffix.lower())


def sniff_bytes(head: bytes) -> str | None:
    """The media type that the first bytes of a file give away, None where they could be text."""
    for magic, mime in _MAGIC:
        if head.startswith(magic):
            return mime
    # The PDF header may stand behind junk; readers look for it in the first kilobyte.
    if b"%PDF-" in head[:1024]:
        return PDF
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return ZIP
    if head.startswith(OLE_MAGIC):
        return OLE
    if head[:4] == b"RIFF":
        return "image/webp" if head[8:12] == b"WEBP" else "audio/x-riff"
    if head[:2] == b"BM" and len(head) > 26 and head[6:10] == b"\0\0\0\0":
        return "image/bmp"
    if head[4:8] == b"ftyp":
        return _FTYP.get(head[8:12], "video/mp4")
    return None


def _zip_kind(file: Path | BinaryIO) -> str:
    try:
        with zipfile.ZipFile(file) as archive:
            names = set(archive.namelist())
            if "mimetype" in names:
                with archive.open("mimetype") as member:
                    declared = member.read(200).decode("ascii", "replace").strip()
                if declared.startswith(("application/vnd.oasis.opendocument", EPUB)):
                    return declared.removesuffix("-template")
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError):
        return BROKEN
    if "xl/workbook.bin" in names:
        return XLSB
    if "[Content_Types].xml" in names or "_rels/.rels" in names:
        for folder, mime in (("word/", DOCX), ("ppt/", PPTX), ("xl/", XLSX)):
            if any(name.startswith(folder) for name in names):
                return mime
    return EPUB if "META-INF/container.xml" in names else ZIP


def _ole_kind(file: Path | BinaryIO) -> str:
    import olefile

    try:
        with olefile.OleFileIO(str(file) if isinstance(file, Path) else file) as storage:
            for stream, mime in (
                ("EncryptedPackage", ENCRYPTED_OFFICE),
                ("WordDocument", DOC),
                ("Workbook", XLS),
                ("Book", XLS),
                ("PowerPoint Document", PPT),
                ("__properties_version1.0", MSG),
            ):
                if storage.exists(stream):
                    return mime
    except (OSError, ValueError, IndexError):
        return BROKEN
    return OLE


def _text_kind(head: bytes, suffix: str) -> str:
    # A cut in the middle of a character must not make UTF-8 look like something else.
    sample = head[: head.rfind(b"\n") + 1] or head if len(head) == _HEAD else head
    try:
        text, _ = decode(sample)
    except PermanentError:
        return UNKNOWN
    by_name = _BY_SUFFIX.get(suffix)
    if by_name in {MARKDOWN, CSV, TSV, JSON, CODE}:
        return by_name or TEXT
    if _HTML_START.match(text[:4096]):
        return HTML
    if _XML_START.match(text[:256]):
        return HTML if "<html" in text[:2048].lower() else XML
    if by_name in {HTML, XML}:
        return by_name or TEXT
    lines = [line for line in text.splitlines()[:20] if line]
    if lines and lines[0].startswith("From ") and any(_HEADER.match(line) for line in lines[1:3]):
        return MBOX
    headers = sum(bool(_HEADER.match(line)) for line in lines)
    first = _ANY_HEADER if by_name == EMAIL else _HEADER
    if headers >= (1 if by_name == EMAIL else 3) and lines and first.match(lines[0]):
        return EMAIL
    return BROKEN if suffix in _NEVER_TEXT else TEXT
