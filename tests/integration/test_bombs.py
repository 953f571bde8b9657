"""Files made to exhaust whoever opens them: each ends in time, as text or as one error that says what to do."""

from __future__ import annotations

import gc
import io
import re
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import docx
import openpyxl
import pptx
import psutil
import pypandoc
import pytest
from PIL import Image

from pipelines.errors import PermanentError
from pipelines.extract import ExtractRules
from pipelines.extract import extract as read
from pipelines.extract.ocr import installed_languages
from pipelines.types import Block, Extracted
from tests.fakes.epub import make_epub

RULES = ExtractRules(seconds=100, page_seconds=8, memory_mb=1024, ocr_languages="eng", ocr_page_seconds=4)
SLACK = 30
"""Seconds beyond the limit that a loaded machine may take to start and to end processes."""
SPARE = 64 * 2**20
"""Bytes by which this process may have grown."""

# Some files take long to make, and ten seconds to read here.
pytestmark = pytest.mark.timeout(300)
needs_tesseract = pytest.mark.skipif(installed_languages() is None, reason="tesseract is not installed")


@pytest.fixture(autouse=True)
def _this_process_is_unharmed() -> Iterator[None]:
    me = psutil.Process()
    children = set(me.children(recursive=True))
    before = me.memory_info().rss
    yield
    gc.collect()
    assert me.memory_info().rss - before < SPARE
    assert set(me.children(recursive=True)) <= children


def extract(path: Path, rules: ExtractRules = RULES) -> Extracted:
    start = time.monotonic()
    try:
        return read(path, rules=rules)
    finally:
        assert time.monotonic() - start < rules.seconds + SLACK


def _error(path: Path, rules: ExtractRules = RULES) -> PermanentError:
    with pytest.raises(PermanentError) as caught:
        extract(path, rules=rules)
    assert caught.value.cause
    assert caught.value.remedy
    return caught.value


def _outcome(path: Path, rules: ExtractRules = RULES) -> Extracted | PermanentError:
    try:
        return extract(path, rules=rules)
    except PermanentError as error:
        assert error.cause
        assert error.remedy
        return error


# Archives


def _stated(path: Path, size: int) -> None:
    """Have each member state `size` bytes, in its own header and in the table of contents."""
    data = bytearray(path.read_bytes())
    for mark, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        for found in re.finditer(re.escape(mark), bytes(data)):
            struct.pack_into("<L", data, found.start() + at, size)
    path.write_bytes(data)


def _zeros(path: Path, member: str, mebibytes: int) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("[Content_Types].xml", "<Types/>")
        with made.open(member, "w") as stream:
            for _ in range(mebibytes):
                stream.write(bytes(2**20))
    return path


def test_a_member_that_unpacks_to_many_times_its_size(tmp_path: Path) -> None:
    assert _error(_zeros(tmp_path / "a.docx", "word/document.xml", 300)).code == "bomb"


def test_a_member_that_states_ten_bytes_and_unpacks_to_many(tmp_path: Path) -> None:
    path = _zeros(tmp_path / "a.docx", "word/document.xml", 300)
    _stated(path, 10)
    assert _error(path).code in {"bomb", "corrupt"}


def test_a_member_that_states_little_is_never_unpacked_beyond_it(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    document = docx.Document()
    for number in range(3000):
        document.add_paragraph(f"paragraph {number}")
    document.save(str(path))
    _stated(path, 10)
    assert _error(path).code == "corrupt"


def test_members_that_overlap(tmp_path: Path) -> None:
    """A table of contents that names one member 15,000 times."""
    path = tmp_path / "a.docx"
    once = tmp_path / "once.zip"
    with zipfile.ZipFile(once, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("word/document.xml", b"<w>" + bytes(2**20))
        made.writestr("[Content_Types].xml", "<Types/>")
    data = once.read_bytes()
    start = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    entry = data[start : data.index(b"PK\x01\x02", start + 4)]
    # All under the one name that stands before it, or it would not be unpacked at all.
    entries = entry * 15_000 + data[start:end]
    path.write_bytes(
        data[:start] + entries + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 15_002, 15_002, len(entries), start, 0)
    )
    assert _error(path).code in {"bomb", "corrupt"}


def test_archives_in_archives_are_not_unpacked(tmp_path: Path) -> None:
    inner = _zeros(tmp_path / "inner.zip", "word/document.xml", 60).read_bytes()
    path = tmp_path / "a.docx"
    document = docx.Document()
    document.add_paragraph("The outer text.")
    document.save(str(path))
    with zipfile.ZipFile(path, "a") as made:
        for number in range(100):
            made.writestr(f"word/embeddings/{number}.zip", inner)
    assert "The outer text." in extract(path, rules=RULES).text


def test_a_table_of_contents_is_not_read_where_it_is_a_bomb_by_itself(tmp_path: Path) -> None:
    """Half a million members, in a ZIP of the usual and of the 64-bit form: not even `sniff` may unfold them."""
    count = 500_000
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\x01\x02", 20, 0, 20, 0, *(0,) * 7, 8, *(0,) * 6)
    entries = b"".join(entry + b"%08d" % number for number in range(count))
    usual = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count & 0xFFFF, count & 0xFFFF, len(entries), 4, 0)
    long = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(entries), 4)
    long += struct.pack("<4sLQL", b"PK\x06\x07", 0, 4 + len(entries), 1)
    long += struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    for end in (usual, usual[:-2] + b"\x03\0abc", long):
        path = tmp_path / "a.docx"
        path.write_bytes(b"PK\x03\x04" + entries + end)
        start = time.process_time()
        assert _error(path).code == "bomb"
        assert time.process_time() - start < 0.5


# XML


def _laughs(path: Path, secret: Path) -> str:
    """A document type with ten to the ninth laughs, and one with a file of this machine."""
    lines = ['<!ENTITY l0 "laughter ">']
    lines += [f'<!ENTITY l{level} "{f"&l{level - 1};" * 10}">' for level in range(1, 10)]
    return f'<!DOCTYPE x [{"".join(lines)}<!ENTITY file SYSTEM "{secret.as_uri()}">]>'


_BOMB = "&l9;&file;"


def _office(path: Path, member: str, secret: Path) -> None:
    """Put the document type and its entities into a member of a good file."""
    with zipfile.ZipFile(path) as source:
        members = {info.filename: source.read(info) for info in source.infolist()}
    text = members[member].decode()
    text = re.sub(r"^(<\?xml[^>]*\?>)?\s*", lambda found: (found[1] or "") + _laughs(path, secret), text, count=1)
    assert "harmless" in text
    members[member] = text.replace("harmless", f"harmless {_BOMB}", 1).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)


def _docx(path: Path, secret: Path) -> None:
    document = docx.Document()
    document.add_paragraph("harmless")
    document.save(str(path))
    _office(path, "word/document.xml", secret)


def _xlsx(path: Path, secret: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(["harmless"])
    book.save(path)
    _office(path, "xl/worksheets/sheet1.xml", secret)


def _pptx(path: Path, secret: Path) -> None:
    deck = pptx.Presentation()
    deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = "harmless"
    deck.save(str(path))
    _office(path, "ppt/slides/slide1.xml", secret)


def _ods(path: Path, secret: Path) -> None:
    spaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
    )
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        made.writestr(
            "content.xml",
            f"<office:document-content {spaces}><office:body><office:spreadsheet><table:table><table:table-row>"
            "<table:table-cell><text:p>harmless</text:p></table:table-cell></table:table-row></table:table>"
            "</office:spreadsheet></office:body></office:document-content>",
        )
    _office(path, "content.xml", secret)


def _odt(path: Path, secret: Path) -> None:
    pypandoc.convert_text("harmless", "odt", "markdown", outputfile=str(path))
    _office(path, "content.xml", secret)


def _epub(path: Path, secret: Path) -> None:
    make_epub(path, "harmless")
    _office(path, "c.xhtml", secret)


def _plain_xml(path: Path, secret: Path) -> None:
    root = {".html": "html", ".svg": "svg", ".xml": "x"}[path.suffix]
    declaration = "" if path.suffix == ".html" else '<?xml version="1.0"?>'
    text = f"{declaration}{_laughs(path, secret)}<{root}><body><p>harmless {_BOMB}</p></body></{root}>"
    path.write_text(text.replace("<!DOCTYPE x", "<!DOCTYPE html") if root == "html" else text)


@pytest.mark.parametrize(("name", "make"), [("a.docx", _docx), ("a.xlsx", _xlsx), ("a.pptx", _pptx), ("a.odt", _odt)])
@pytest.mark.parametrize("bomb", ["&l9;", "&l9;&file;"])
def test_entities_that_multiply_are_called_a_bomb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, make: Callable[[Path, Path], None], bomb: str
) -> None:
    monkeypatch.setattr(f"{__name__}._BOMB", bomb)
    make(tmp_path / name, tmp_path / "secret")
    error = _error(tmp_path / name)
    assert error.code == "bomb"
    assert "XML entities" in error.cause


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.docx", _docx),
        ("a.xlsx", _xlsx),
        ("a.pptx", _pptx),
        ("a.odt", _odt),
        ("a.ods", _ods),
        ("a.epub", _epub),
        ("a.html", _plain_xml),
        ("a.svg", _plain_xml),
        ("a.xml", _plain_xml),
    ],
)
@pytest.mark.parametrize("bomb", ["&l9;&file;", "&file;"])
def test_entities_neither_multiply_nor_read_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, make: Callable[[Path, Path], None], bomb: str
) -> None:
    monkeypatch.setattr(f"{__name__}._BOMB", bomb)
    secret = tmp_path / "secret"
    secret.write_text("ABRACADABRA")
    make(tmp_path / name, secret)
    found = _outcome(tmp_path / name)
    if isinstance(found, Extracted):
        assert "harmless" in found.text
        assert "ABRACADABRA" not in found.text
        # The document type itself is text where the format is source code.
        assert found.text.count("laughter") < 10_000
    else:
        assert found.code == "bomb"


# Pictures


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">L", len(content)) + kind + content + struct.pack(">L", zlib.crc32(kind + content))


def _packed(once: bytes, times: int) -> bytes:
    """Something so many times over as `zlib.compress` might pack it, but packed once."""
    packer = zlib.compressobj(9, wbits=-15)
    block = packer.compress(once) + packer.flush(zlib.Z_FULL_FLUSH)  # after which it goes on as if it began anew
    check = 1
    for _ in range(times):
        check = zlib.adler32(once, check)
    return b"\x78\xda" + block * times + b"\x03\0" + struct.pack(">L", check)


def _huge_grey(side: int) -> bytes:
    """Deflated rows of a black picture, each with the PNG filter 0."""
    return _packed(bytes(1 + side) * 500, side // 500)


@needs_tesseract
def test_a_picture_of_a_thousand_million_pixels(tmp_path: Path) -> None:
    side = 35_000
    header = struct.pack(">2L5B", side, side, 8, 0, 0, 0, 0)
    path = tmp_path / "a.png"
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", _huge_grey(side)) + _chunk(b"IEND", b"")
    )
    error = _error(path)
    assert error.code == "bomb"
    assert "35,000 by 35,000 pixels" in error.cause


# PDF


def _pdf(path: Path, objects: list[bytes]) -> Path:
    """A PDF of numbered objects; the first is the catalogue."""
    data, offsets = bytearray(b"%PDF-1.7\n"), []
    for number, content in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj%s endobj\n" % (number, content)
    start = len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    data += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    data += b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, start)
    path.write_bytes(data)
    return path


def _stream(content: bytes, entries: bytes = b"") -> bytes:
    return b"<</Length %d%s>>stream\n%s\nendstream" % (len(content), entries, content)


def _page(path: Path, content: bytes, *more: bytes, resources: bytes = b"", good: bool = True) -> Path:
    """Two pages: the first with a content stream (number 5), the second with a sentence; `more` from number 8."""
    kids = b"[3 0 R 4 0 R]" if good else b"[3 0 R]"
    sentence = b"BT /F 12 Tf 72 700 Td (The second page has a sentence that is long enough to be text.) Tj ET"
    return _pdf(
        path,
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Count %d/Kids%s>>" % (2 if good else 1, kids),
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 5 0 R/Resources<</Font<</F 7 0 R>>%s>>>>"
            % resources,
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 6 0 R/Resources<</Font<</F 7 0 R>>>>>>",
            content,
            _stream(sentence),
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
            *more,
        ],
    )


def _second_page(found: Extracted | PermanentError) -> str:
    assert isinstance(found, Extracted), found
    return " ".join(block.text for block in found.blocks if block.page == 2)


@needs_tesseract
def test_a_picture_of_a_thousand_million_pixels_in_a_pdf(tmp_path: Path) -> None:
    side = 35_000
    image = (
        b"/Type/XObject/Subtype/Image/Width %d/Height %d/ColorSpace/DeviceGray/BitsPerComponent 8/Filter/FlateDecode"
    )
    packed = _stream(_huge_grey(side), image % (side, side) + b"/DecodeParms<</Predictor 15/Columns %d>>" % side)
    path = _page(tmp_path / "a.pdf", _stream(b"612 0 0 792 0 0 cm /I Do"), packed, resources=b"/XObject<</I 8 0 R>>")
    found = _outcome(path)
    assert "The second page has a sentence" in _second_page(found)


def test_a_content_stream_of_a_gibibyte(tmp_path: Path) -> None:
    once = b"0 0 m 1 1 l S\n" * 2**16
    packed = zlib.compress(_packed(once, 2**30 // len(once)))
    assert len(packed) < 2**20
    found = _outcome(_page(tmp_path / "a.pdf", _stream(packed, b"/Filter[/FlateDecode/FlateDecode]")))
    if isinstance(found, Extracted):
        assert "The second page has a sentence" in _second_page(found)
    else:
        assert found.code in {"extract_timeout", "out_of_memory"}


def test_a_picture_packed_as_jbig2_that_states_a_large_page(tmp_path: Path) -> None:
    segment = struct.pack(">LBBBL", 0, 48, 0, 1, 19) + struct.pack(">4LBH", 60_000, 60_000, 0, 0, 0, 0)
    entries = b"/Type/XObject/Subtype/Image/Width 60000/Height 60000/ColorSpace/DeviceGray/BitsPerComponent 1"
    packed = _stream(segment, entries + b"/Filter/JBIG2Decode")
    path = _page(tmp_path / "a.pdf", _stream(b"612 0 0 792 0 0 cm /I Do"), packed, resources=b"/XObject<</I 8 0 R>>")
    found = _outcome(path)
    if isinstance(found, PermanentError):
        assert found.code == "ocr_unavailable"
    else:
        assert "The second page has a sentence" in _second_page(found)


def _deep_tree(path: Path) -> Path:
    """Ten thousand nodes of a page tree, each the only child of the one before."""
    depth = 10_000
    nodes = [
        b"<</Type/Pages/Count 1/Kids[%d 0 R]%s>>" % (n + 3, b"/Parent %d 0 R" % (n + 1) if n else b"")
        for n in range(depth)
    ]
    page = b"<</Type/Page/Parent %d 0 R/MediaBox[0 0 612 792]>>" % (depth + 1)
    return _pdf(path, [b"<</Type/Catalog/Pages 2 0 R>>", *nodes, page])


def _cyclic_tree(path: Path) -> Path:
    node = b"<</Type/Pages/Count 100/Kids[2 0 R 2 0 R]/Parent 2 0 R>>"
    return _pdf(path, [b"<</Type/Catalog/Pages 2 0 R>>", node])


@pytest.mark.parametrize("make", [_deep_tree, _cyclic_tree])
def test_page_trees_without_an_end(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    found = _error(make(tmp_path / "a.pdf"))
    assert found.code in {"corrupt", "no_text", "too_many_pages", "parser_failed", "parser_crashed"}


@pytest.mark.parametrize("count", [30_000, 300_000])
def test_many_texts_on_one_page(tmp_path: Path, count: int) -> None:
    lines = b"\n".join(
        b"BT /F 6 Tf %d %d Td (word%d) Tj ET" % (20 + number % 20 * 28, 780 - number // 20 % 110 * 7, number)
        for number in range(count)
    )
    found = _outcome(_page(tmp_path / "a.pdf", _stream(zlib.compress(lines), b"/Filter/FlateDecode")))
    if isinstance(found, Extracted):
        assert "The second page has a sentence" in _second_page(found)
    else:
        assert found.code == "extract_timeout"
        assert "page 1 of 2" in found.cause


def test_a_million_paths_on_one_page(tmp_path: Path) -> None:
    lines = b"\n".join(b"%d %d m %d 700 l S" % (n % 600, n % 780, n % 511) for n in range(1_000_000))
    found = _outcome(_page(tmp_path / "a.pdf", _stream(zlib.compress(lines, 1), b"/Filter/FlateDecode")))
    assert "The second page has a sentence" in _second_page(found)


# Nesting and length


@pytest.mark.parametrize("depth", [300, 10_000, 100_000])
@pytest.mark.parametrize("tags", ["div", "b", "ul li", "table tr td"])
def test_elements_deep_in_each_other_lose_no_word(tmp_path: Path, depth: int, tags: str) -> None:
    begin = "".join(f"<{tag}>" for tag in tags.split()) * depth
    end = "".join(f"</{tag}>" for tag in reversed(tags.split())) * depth
    path = tmp_path / "a.html"
    path.write_text(
        f"<html><body><h1>Above</h1>{begin}the innermost words<script>no()</script>"
        f"<p>a line&#1;<br>another</p>behind{end}<p>the last words"
    )
    found = extract(path, rules=RULES)
    words = " ".join(found.text.split())
    assert found.blocks[0] == Block("heading", "Above", level=1)
    assert words.endswith("the innermost words a line another behind the last words")


def test_a_text_of_twelve_megabytes_in_one_element(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text(f"<html><body><p>{'word ' * 2_400_000}and the last</p><p>after it")
    found = extract(path, rules=RULES)
    assert len(found.blocks[0].text) == 12_000_000 + len("and the last")
    assert found.blocks[-1].text == "after it"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "[" * 1_000_000),
        ("a.xml", '<?xml version="1.0"?>' + "<a>" * 1_000_000),
        ("a.md", ">" * 1_000_000),
        ("a.md", "\n".join("  " * depth + "- a" for depth in range(1500))),
        ("a.py", "a\n" + "\n" * 5_000_000 + " b"),
        ("a.txt", "a" + " " * 5_000_000 + "b"),
        ("a.html", "<!---->" * 1000 + "x"),
        ("a.csv", "a,b\n" + "\t" * 1_000_000 + "x,y"),
    ],
    ids=["json", "xml", "quotes", "lists", "blank lines", "spaces", "comments", "tabs"],
)
def test_texts_that_are_hard_on_expressions(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    start = psutil.Process().cpu_times()
    found = _outcome(path)
    end = psutil.Process().cpu_times()
    used = end.user + end.system + end.children_user + end.children_system
    used -= start.user + start.system + start.children_user + start.children_system
    assert used < 10
    if isinstance(found, PermanentError):
        assert found.code == "no_text"


def test_a_text_that_cannot_be_normalised_in_time_ends_at_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a" + "\u0301\u0323" * 2_000_000)
    assert _error(path, ExtractRules(seconds=3)).code == "extract_timeout"


def test_a_sheet_that_says_it_has_every_row(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    book = openpyxl.Workbook()
    book.active["A1"] = "first"
    book.active["XFD1048576"] = "last"
    book.save(path)
    found = extract(path, rules=RULES)
    assert "first" in found.text
    assert "last" in found.text
    assert len(found.text) < 2**20


def _nested_mail(path: Path, depth: int) -> Path:
    lines = ["From: a@example.org", "Subject: deep", "Date: Mon, 1 Jun 2026 10:00:00 +0000", "MIME-Version: 1.0"]
    for level in range(depth):
        lines += [f'Content-Type: multipart/mixed; boundary="b{level}"', "", f"--b{level}"]
        lines += ["Content-Type: text/plain", "", f"part {level}.", f"--b{level}"] * 10
    lines += ["Content-Type: text/plain", "", "innermost"]
    for level in reversed(range(depth)):
        lines += [f"--b{level}", "Content-Type: text/plain", "", f"after {level}.", f"--b{level}--"]
    path.write_text("\r\n".join(lines))
    return path


def test_parts_of_a_message_that_lie_too_deep_are_left_out_and_named(tmp_path: Path) -> None:
    start = psutil.Process().cpu_times().children_user
    found = extract(_nested_mail(tmp_path / "a.eml", 1000), rules=RULES)
    assert psutil.Process().cpu_times().children_user - start < 10
    words = found.text.split()
    assert words.count("49.") == 11
    assert "50." not in words
    assert "innermost" not in words
    assert words[-2:] == ["after", "0."]
    assert found.metadata["warnings"] == ["parts more than 50 deep in each other were left out"]


def test_parts_of_a_message_as_deep_as_they_may_be_are_all_read(tmp_path: Path) -> None:
    found = extract(_nested_mail(tmp_path / "a.eml", 50), rules=RULES)
    assert "innermost" in found.text
    assert "warnings" not in found.metadata


def test_messages_in_messages_a_thousand_deep(tmp_path: Path) -> None:
    lines = []
    for level in range(1000):
        lines += [f"Subject: level {level}", "Content-Type: message/rfc822", ""]
    path = tmp_path / "a.eml"
    path.write_text("\n".join(["From: a@example.org", *lines, "Subject: last", "", "innermost"]))
    found = extract(path, rules=RULES)
    assert found.title == "level 0"
    assert [one.name for one in found.attachments] == ["level 1.eml"]


def test_a_cell_of_a_hundred_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with path.open("w") as file:
        file.write('id,text\n1,"')
        for _ in range(100):
            file.write("lorem ipsum " * (10**6 // 12))
        file.write('"\n')
    error = _error(path)
    assert error.code == "bomb"
    assert "a cell of the table has more than 16,777,216 characters" in error.cause
    assert "quotation mark" in error.remedy


def test_a_line_of_a_hundred_megabytes_needs_no_more_memory_than_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with path.open("w") as file:
        for _ in range(100):
            file.write("lorem  ipsum " * (10**6 // 13))
    found = extract(path, rules=replace(RULES, memory_mb=512))
    assert len(found.blocks) == 1
    assert found.blocks[0].text[-12:] == " lorem ipsum"


def test_a_tiff_whose_directory_points_at_itself(tmp_path: Path) -> None:
    made = io.BytesIO()
    Image.new("L", (200, 50), 255).save(made, "TIFF")
    data = bytearray(made.getvalue())
    (first,) = struct.unpack_from("<L", data, 4)
    (entries,) = struct.unpack_from("<H", data, first)
    struct.pack_into("<L", data, first + 2 + 12 * entries, first)
    path = tmp_path / "a.tiff"
    path.write_bytes(data)
    found = _outcome(path)
    if isinstance(found, PermanentError):
        assert found.code in {"corrupt", "no_text", "too_many_pages", "ocr_unavailable"}
