"""A book of one chapter."""

from __future__ import annotations

import zipfile
from pathlib import Path

_CONTAINER = (
    '<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="a.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
_PACKAGE = (
    '<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="i"><metadata '
    'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Book</dc:title><dc:identifier id="i">i'
    '</dc:identifier><dc:language>en</dc:language></metadata><manifest><item id="c" href="c.xhtml" '
    'media-type="application/xhtml+xml"/></manifest><spine><itemref idref="c"/></spine></package>'
)


def make_epub(path: Path, markup: str) -> None:
    """Write an EPUB whose chapter, the member `c.xhtml`, is a paragraph of this markup."""
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("mimetype", "application/epub+zip")
        made.writestr("META-INF/container.xml", _CONTAINER)
        made.writestr("a.opf", _PACKAGE)
        made.writestr(
            "c.xhtml",
            '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title>c</title></head>'
            f"<body><p>{markup}</p></body></html>",
        )
