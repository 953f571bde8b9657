"""Office documents made here: what their readers must not lose, and what is inside them."""

from __future__ import annotations

import datetime
import io
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import docx
import openpyxl
import pypandoc
import pytest
from PIL import Image, ImageDraw, ImageFont
from pptx import Presentation
from pptx.util import Inches

from pipelines.chunk import ChunkRules, chunk
from pipelines.errors import PermanentError
from pipelines.extract import extract
from pipelines.extract.ocr import installed_languages
from pipelines.types import Extracted
from tests.fakes.compound_file import compound_file

needs_tesseract = pytest.mark.skipif(installed_languages() is None, reason="tesseract is not installed")
NAMES = (
    'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    ' xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    ' xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    ' xmlns:v="urn:schemas-microsoft-com:vml"'
    ' xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape"'
)


RELATIONS = '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{}</Relationships>'


def _relation(kind: str, target: str) -> str:
    place = f"http://schemas.openxmlformats.org/officeDocument/2006/relationships/{kind}"
    return f'<Relationship Id="r{kind}" Type="{place}" Target="{target}"/>'


def _picture(text: str, size: tuple[int, int] = (900, 200)) -> io.BytesIO:
    image = Image.new("L", size, 255)
    ImageDraw.Draw(image).text((40, 60), text, fill=0, font=ImageFont.load_default(44))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    buffer.seek(0)
    return buffer


def _changed(path: Path, parts: Mapping[str, bytes | str]) -> Path:
    """The file with some parts of its archive set."""
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (held | dict(parts)).items():
            archive.writestr(name, content)
    return path


def _word(tmp_path: Path, body: str = "", parts: Mapping[str, bytes | str] | None = None) -> Path:
    """A Word file with this body, in WordprocessingML."""
    path = tmp_path / "a.docx"
    docx.Document().save(str(path))
    document = f"<w:document {NAMES}><w:body>{body}<w:sectPr/></w:body></w:document>"
    return _changed(path, {"word/document.xml": document, **(parts or {})})


def _paragraph(inner: str) -> str:
    return f"<w:p>{inner}</w:p>"


def _run(text: str) -> str:
    return f"<w:r><w:t xml:space='preserve'>{text}</w:t></w:r>"


def _texts(extracted: Extracted) -> list[str]:
    return [block.text for block in extracted.blocks]


def test_tracked_changes_are_read_as_accepted(tmp_path: Path) -> None:
    deleted_row = (
        "<w:tr><w:trPr><w:del w:id='3'/></w:trPr><w:tc><w:p><w:r><w:t>gone row</w:t></w:r></w:p></w:tc></w:tr>"
    )
    kept_row = f"<w:tr><w:tc>{_paragraph(_run('kept row'))}</w:tc></w:tr>"
    body = (
        _paragraph(
            _run("The rent is ")
            + "<w:del w:id='1'><w:r><w:delText>900</w:delText></w:r></w:del>"
            + f"<w:ins w:id='2'>{_run('950')}</w:ins>"
            + _run(" euros.")
        )
        + f"<w:tbl><w:tblPr/><w:tblGrid><w:gridCol/></w:tblGrid>{kept_row}{deleted_row}</w:tbl>"
    )
    assert _texts(extract(_word(tmp_path, body))) == ["The rent is 950 euros.", "| kept row |\n| --- |"]


def test_what_stands_in_controls_fields_and_boxes_is_read_once(tmp_path: Path) -> None:
    control = f"<w:sdt><w:sdtPr/><w:sdtContent>{_paragraph(_run('in a control'))}</w:sdtContent></w:sdt>"
    contents = (
        "<w:sdt><w:sdtPr><w:docPartObj><w:docPartGallery w:val='Table of Contents'/></w:docPartObj></w:sdtPr>"
        f"<w:sdtContent>{_paragraph(_run('Rent 3'))}</w:sdtContent></w:sdt>"
    )
    field = _paragraph(_run("See ") + f"<w:fldSimple w:instr='REF x'>{_run('section 4')}</w:fldSimple>")
    box = f"<w:txbxContent>{_paragraph(_run('in a box'))}</w:txbxContent>"
    boxed = _paragraph(
        _run("before the box")
        + "<w:r><mc:AlternateContent><mc:Choice Requires='wps'><wps:wsp><wps:txbx>"
        + f"{box}</wps:txbx></wps:wsp></mc:Choice><mc:Fallback><w:pict><v:shape><v:textbox>{box}</v:textbox>"
        + "</v:shape></w:pict></mc:Fallback></mc:AlternateContent></w:r>"
    )
    extracted = extract(_word(tmp_path, contents + control + field + boxed))
    assert _texts(extracted) == ["in a control", "See section 4", "before the box", "in a box"]


def test_the_words_below_their_pronunciation_are_read(tmp_path: Path) -> None:
    ruby = f"<w:ruby><w:rubyPr/><w:rt>{_run('とうきょう')}</w:rt><w:rubyBase>{_run('東京')}</w:rubyBase></w:ruby>"
    body = _paragraph(_run("In ") + f"<w:r><w:rPr/>{ruby}</w:r>" + _run(" it rains."))
    assert _texts(extract(_word(tmp_path, body))) == ["In 東京 it rains."]


def test_equations_become_latex(tmp_path: Path) -> None:
    def run(text: str) -> str:
        return f"<m:r><m:t>{text}</m:t></m:r>"

    fraction = f"<m:f><m:num>{run('a')}</m:num><m:den><m:rad><m:deg/><m:e>{run('b')}</m:e></m:rad></m:den></m:f>"
    power = f"<m:sSup><m:e>{run('x')}</m:e><m:sup>{run('2')}</m:sup></m:sSup>"
    total = (
        f"<m:nary><m:naryPr><m:chr m:val='∑'/></m:naryPr><m:sub>{run('i=1')}</m:sub><m:sup>{run('n')}</m:sup>"
        f"<m:e>{run('i')}</m:e></m:nary>"
    )
    body = (
        _paragraph(_run("For ") + f"<m:oMath>{run('m=1')}</m:oMath>" + _run(" it holds."))
        + _paragraph(f"<m:oMathPara><m:oMath>{fraction}{run('=')}{power}</m:oMath></m:oMathPara>")
        + _paragraph(f"<m:oMath>{total}<m:d><m:e>{run('k')}</m:e></m:d></m:oMath>")
    )
    assert _texts(extract(_word(tmp_path, body))) == [
        "For $m=1$ it holds.",
        r"$$\frac{a}{\sqrt{b}}=x^{2}$$",
        r"$\sum_{i=1}^{n} i(k)$",
    ]


def test_notes_and_comments_follow_the_body(tmp_path: Path) -> None:
    notes = (
        f"<w:footnotes {NAMES}><w:footnote w:type='separator' w:id='-1'>{_paragraph(_run('---'))}</w:footnote>"
        f"<w:footnote w:id='1'>{_paragraph(_run('as of 2026'))}</w:footnote></w:footnotes>"
    )
    comments = (
        f"<w:comments {NAMES}><w:comment w:id='1' w:author='Bo'>{_paragraph(_run('ask Ana'))}</w:comment></w:comments>"
    )
    path = _word(tmp_path, _paragraph(_run("text")), {"word/footnotes.xml": notes, "word/comments.xml": comments})
    assert _texts(extract(path)) == ["text", "as of 2026", "Comment (Bo): ask Ana"]


def _native(name: str, content: bytes) -> bytes:
    """An `Ole10Native` stream, as the packager writes it."""
    temporary = b"C:\\t\\x\0"
    inner = struct.pack("<H", 2) + name.encode("cp1252") + b"\0C:\\x\0" + struct.pack("<HHI", 0, 3, len(temporary))
    inner += temporary + struct.pack("<I", len(content)) + content
    return struct.pack("<I", len(inner)) + inner


def test_embedded_files_become_documents(tmp_path: Path) -> None:
    inner = io.BytesIO()
    docx.Document().save(inner)
    parts = {
        "word/embeddings/Sheet1.xlsx": b"PK-not-really",
        "word/embeddings/oleObject1.bin": compound_file({"\x01Ole10Native": _native("prix été.csv", b"a;b\n")}),
        "word/embeddings/oleObject2.bin": compound_file({"CONTENTS": b"%PDF-1.4 " + bytes(5000)}),
        "word/embeddings/oleObject3.bin": compound_file({"Package": inner.getvalue()}),
        "word/elsewhere/part.mht": b"Subject: merged by Word\n\ntext",
        "word/_rels/document.xml.rels": RELATIONS.format(_relation("aFChunk", "/word/elsewhere/part.mht")),
        "word/embeddings/oleObject4.bin": compound_file({"Equation Native": b"x"}),
        "word/embeddings/oleObject5.bin": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 cut",
    }
    folder = tmp_path / "attachments"
    folder.mkdir()
    path = _word(tmp_path, _paragraph(_run("text")), parts)
    with zipfile.ZipFile(path) as archive:
        kinds = archive.read("[Content_Types].xml").decode()
    mht = '<Default Extension="mht" ContentType="message/rfc822"/></Types>'
    extracted = extract(_changed(path, {"[Content_Types].xml": kinds.replace("</Types>", mht)}), attachments=folder)
    assert {one.name: Path(one.path or "").read_bytes()[:4] for one in extracted.attachments} == {
        "Sheet1.xlsx": b"PK-n",
        "prix été.csv": b"a;b\n",
        "part.mht": b"Subj",
        "oleObject2.pdf": b"%PDF",
        "oleObject3.docx": b"PK\x03\x04",
    }


@needs_tesseract
def test_words_in_pictures_are_read_where_there_is_room_for_them(tmp_path: Path) -> None:
    document = docx.Document()
    document.add_paragraph("The label:")
    document.add_picture(_picture("Invoice number 8842"))
    document.add_picture(_picture("Tiny logo text", (190, 50)))
    path = tmp_path / "a.docx"
    document.save(str(path))
    assert _texts(extract(path)) == ["The label:", "Text in a picture: Invoice number 8842"]


@needs_tesseract
def test_pictures_over_the_bound_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.extract.office.pictures import Picture, PictureReader
    from pipelines.extract.rules import ExtractRules

    monkeypatch.setattr("pipelines.extract.office.pictures.MAX_PICTURES", 1)
    pictures = [Picture(_picture(f"Invoice number {number}").getvalue()) for number in (8842, 8842, 8843, 8844)]
    reader = PictureReader(ExtractRules())
    assert [block.text for block in reader.read(pictures)] == ["Text in a picture: Invoice number 8842"]
    assert reader.warnings == ["2 of 3 pictures in the document were not read"]


def test_without_tesseract_a_document_with_pictures_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = docx.Document()
    document.add_paragraph("The label:")
    document.add_picture(_picture("Invoice number 8842"))
    with_text, without = tmp_path / "a.docx", tmp_path / "b.docx"
    document.save(str(with_text))
    only = docx.Document()
    only.add_picture(_picture("Invoice number 8842"))
    only.save(str(without))
    monkeypatch.setenv("PATH", str(tmp_path))
    extracted = extract(with_text)
    assert _texts(extracted) == ["The label:"]
    assert "1 pictures in the document were not read" in extracted.metadata["warnings"][0]
    with pytest.raises(PermanentError) as caught:
        extract(without)
    assert caught.value.code == "ocr_unavailable"


def _book(tmp_path: Path) -> Path:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Prices"
    sheet.append(["Price list 2026"])
    sheet.append([])
    sheet.append(["SKU", "Price", "From", "VAT", "Stock"])
    sheet.append([8842, 12.3456789, datetime.date(2026, 5, 1), 0.2, True])
    sheet.append([8843, None, datetime.datetime(2026, 5, 1, 12, 30), None, 7])
    sheet["D4"].number_format = "0%"
    hidden = book.create_sheet("Secret")
    hidden.sheet_state = "hidden"
    hidden.append(["a|b", "line\nbreak"])
    book.save(tmp_path / "a.xlsx")
    return tmp_path / "a.xlsx"


def test_a_workbook_keeps_its_digits_dates_and_hidden_sheets(tmp_path: Path) -> None:
    assert [(block.kind, block.text) for block in extract(_book(tmp_path)).blocks] == [
        ("heading", "Prices"),
        ("paragraph", "Price list 2026"),
        (
            "table",
            "| SKU | Price | From | VAT | Stock |\n| --- | --- | --- | --- | --- |\n"
            "| 8842 | 12.3456789 | 2026-05-01 | 20% | TRUE |\n| 8843 | | 2026-05-01 12:30:00 | | 7 |",
        ),
        ("heading", "Secret"),
        ("table", "| a\\|b | line break |\n| --- | --- |"),
    ]


def test_a_formula_is_read_as_its_value_and_a_shape_as_its_words(tmp_path: Path) -> None:
    path = _book(tmp_path)
    with zipfile.ZipFile(path) as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml").decode()
    drawing = (
        '<xdr:wsDr xmlns:xdr="http://schemas.openxmlformats.org/drawingml/2006/spreadsheetDrawing"'
        ' xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"><xdr:sp><xdr:txBody><a:p><a:r>'
        "<a:t>Ask Ana first</a:t></a:r></a:p></xdr:txBody></xdr:sp></xdr:wsDr>"
    )
    sheet = sheet.replace("<v>12.3456789</v>", "<f>6*2</f><v>12</v>")
    _changed(path, {"xl/worksheets/sheet1.xml": sheet, "xl/drawings/drawing1.xml": drawing})
    texts = _texts(extract(path))
    assert "| 8842 | 12 |" in texts[2]
    assert texts[-1] == "Ask Ana first"


def test_a_workbook_is_read_without_what_it_links_to(tmp_path: Path) -> None:
    path = _book(tmp_path)
    with zipfile.ZipFile(path) as archive:
        book = archive.read("xl/workbook.xml").decode()
        relations = archive.read("xl/_rels/workbook.xml.rels").decode()
    names = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
    reference = f'<externalReferences><externalReference {names} r:id="rexternalLink"/></externalReferences><calcPr'
    whole = _texts(extract(path))
    link = _relation("externalLink", "externalLinks/missing.xml")
    _changed(
        path,
        {
            "xl/workbook.xml": book.replace("<calcPr", reference),
            "xl/_rels/workbook.xml.rels": relations.replace("</Relationships>", f"{link}</Relationships>"),
        },
    )
    assert _texts(extract(path)) == whole


def test_every_piece_of_a_long_sheet_has_the_header_and_its_rule(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(["SKU", "Description", "Price"])
    for number in range(500):
        book.active.append([number, f"part {number} of the pump, galvanised", number / 4])
    book.save(tmp_path / "a.xlsx")
    extracted = extract(tmp_path / "a.xlsx")
    header = "| SKU | Description | Price |\n| --- | --- | --- |\n"
    assert len(extracted.blocks) == 11
    chunks = chunk(extracted, ChunkRules(tokens=128, overlap=0))
    assert len(chunks) > 20
    assert all(header in one.content for one in chunks)
    rows = [line for one in chunks for line in one.content.splitlines() if line[2:3].isdigit()]
    assert len(rows) == 500
    assert len(set(rows)) == 500


def test_every_piece_of_a_long_word_table_has_the_header_and_its_rule(tmp_path: Path) -> None:
    document = docx.Document()
    table = document.add_table(80, 2)
    for number, row in enumerate(table.rows):
        row.cells[0].text, row.cells[1].text = ("Code", "Meaning") if not number else (f"E-{number}", "the pump stops")
    document.save(str(tmp_path / "a.docx"))
    chunks = chunk(extract(tmp_path / "a.docx"), ChunkRules(tokens=64, overlap=0))
    assert len(chunks) > 5
    assert all(one.content.startswith("| Code | Meaning |\n| --- | --- |\n") for one in chunks)


def _slides(tmp_path: Path) -> Path:
    show = Presentation()
    for title in ("Roadmap", "Costs"):
        show.slides.add_slide(show.slide_layouts[5]).shapes.title.text = title
    first, second = show.slides
    first.notes_slide.notes_text_frame.text = "Mention the March date"
    group = first.shapes.add_group_shape()
    group.shapes.add_textbox(0, Inches(3), Inches(2), Inches(1)).text_frame.text = "in a group"
    table = second.shapes.add_table(2, 2, 0, Inches(2), Inches(4), Inches(1)).table
    for cell, text in zip(table.iter_cells(), ("Item", "EUR", "Pump", "950"), strict=True):
        cell.text = text
    first.shapes.add_picture(_picture("Invoice number 8842"), 0, Inches(5))
    show.save(str(tmp_path / "a.pptx"))
    return tmp_path / "a.pptx"


@needs_tesseract
def test_slides_with_notes_groups_tables_and_pictures(tmp_path: Path) -> None:
    found = {(block.page, block.text) for block in extract(_slides(tmp_path)).blocks}
    assert found == {
        (1, "Roadmap"),
        (1, "in a group"),
        (1, "Mention the March date"),
        (1, "Text in a picture: Invoice number 8842"),
        (2, "Costs"),
        (2, "| Item | EUR |\n| --- | --- |\n| Pump | 950 |"),
    }
    pages = [block.page for block in extract(_slides(tmp_path)).blocks]
    assert pages == sorted(pages)


def test_a_diagram_is_read_with_its_slide(tmp_path: Path) -> None:
    path = _slides(tmp_path)
    with zipfile.ZipFile(path) as archive:
        relations = archive.read("ppt/slides/_rels/slide2.xml.rels").decode()
    diagram = (
        '<dgm:dataModel xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram"'
        ' xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"><dgm:ptLst><dgm:pt><dgm:t><a:p><a:r><a:t>Plan'
        "</a:t></a:r></a:p></dgm:t></dgm:pt></dgm:ptLst></dgm:dataModel>"
    )
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/diagramData"
    relation = f'<Relationship Id="rId90" Type="{kind}" Target="../diagrams/data1.xml"/></Relationships>'
    with zipfile.ZipFile(path) as archive:
        types = archive.read("[Content_Types].xml").decode()
    override = '<Override PartName="/ppt/diagrams/data1.xml" ContentType="application/xml"/></Types>'
    _changed(
        path,
        {
            "ppt/diagrams/data1.xml": diagram,
            "ppt/slides/_rels/slide2.xml.rels": relations.replace("</Relationships>", relation),
            "[Content_Types].xml": types.replace("</Types>", override),
        },
    )
    assert (2, "Plan") in {(block.page, block.text) for block in extract(path).blocks}


def test_what_the_masters_say_is_read_once_where_the_slides_say_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.pptx"
    show = Presentation()
    for _ in range(2):
        show.slides.add_slide(show.slide_layouts[6])
    show.save(str(path))
    shape = (
        '<p:sp><p:nvSpPr><p:cNvPr id="99" name="x"/><p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr/><p:txBody><a:bodyPr/>'
        "<a:p><a:r><a:t>{}</a:t></a:r></a:p></p:txBody></p:sp></p:spTree>"
    )
    with zipfile.ZipFile(path) as archive:
        master, layout = (
            archive.read(name).decode()
            for name in ("ppt/slideMasters/slideMaster1.xml", "ppt/slideLayouts/slideLayout7.xml")
        )
    _changed(
        path,
        {
            "ppt/slideMasters/slideMaster1.xml": master.replace("</p:spTree>", shape.format("Ana's office")),
            "ppt/slideLayouts/slideLayout7.xml": layout.replace("</p:spTree>", shape.format("For the board")),
        },
    )
    assert _texts(extract(path)) == ["For the board", "Ana's office"]
    show = Presentation(str(path))
    show.slides[0].shapes.add_textbox(0, 0, 9, 9).text_frame.text = "Rent"
    show.save(str(path))
    assert _texts(extract(path)) == ["Rent"]


def test_open_document_text_with_notes_and_tables(tmp_path: Path) -> None:
    markdown = "## Rent\n\nDue monthly.[^1]\n\n[^1]: as of 2026\n\n| SKU | EUR |\n|-----|-----|\n| 8842-B | 12 |\n"
    path = tmp_path / "a.odt"
    pypandoc.convert_text(markdown, "odt", "markdown", outputfile=str(path))
    assert [(block.kind, block.level, block.text) for block in extract(path).blocks] == [
        ("heading", 2, "Rent"),
        ("paragraph", 0, "Due monthly."),
        ("table", 0, "| SKU | EUR |\n| --- | --- |\n| 8842-B | 12 |"),
        ("list", 0, "as of 2026"),
    ]
    _changed(path, {"styles.xml": "<cut"})
    with pytest.raises(PermanentError) as caught:
        extract(path)
    assert caught.value.code == "corrupt"


SPACES = "".join(
    f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{urn}:1.0"'
    for name, urn in (
        ("office", "office"),
        ("text", "text"),
        ("table", "table"),
        ("draw", "drawing"),
        ("presentation", "presentation"),
    )
)


def _open_document(path: Path, kind: str, body: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", f"application/vnd.oasis.opendocument.{kind}")
        archive.writestr("content.xml", f"<office:document-content{SPACES}>{body}</office:document-content>")
    return path


def test_shapes_and_comments_of_an_open_document_text_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "a.odt"
    pypandoc.convert_text("The rent.", "odt", "markdown", outputfile=str(path))
    with zipfile.ZipFile(path) as archive:
        content = archive.read("content.xml").decode()
    names = "xmlns:draw='urn:oasis:names:tc:opendocument:xmlns:drawing:1.0' xmlns:dc='http://purl.org/dc/elements/1.1/'"
    asides = (
        f"<text:p {names}>Due<office:annotation><dc:creator>Ana</dc:creator><text:p>ask Bo</text:p></office:annotation>"
        "<draw:custom-shape><text:p>in a shape</text:p></draw:custom-shape></text:p></office:text>"
    )
    _changed(path, {"content.xml": content.replace("</office:text>", asides)})
    assert _texts(extract(path)) == ["The rent.", "Due", "Comment (Ana): ask Bo", "in a shape"]


def test_the_words_of_a_chart_are_read(tmp_path: Path) -> None:
    words = (
        "<a:p xmlns:a='http://schemas.openxmlformats.org/drawingml/2006/main'><a:r><a:t>Rent by year</a:t></a:r></a:p>"
    )
    path = _word(tmp_path, _paragraph(_run("text")), {"word/charts/chart1.xml": f"<chart>{words}</chart>"})
    assert _texts(extract(path)) == ["text", "Rent by year"]


def test_an_open_document_spreadsheet(tmp_path: Path) -> None:
    def row(*cells: str) -> str:
        edge = "<table:table-cell table:number-columns-repeated='16000'/>"
        return f"<table:table-row>{''.join(cells)}{edge}</table:table-row>"

    def text(words: str, more: str = "") -> str:
        return f"<table:table-cell {more}><text:p>{words}</text:p></table:table-cell>"

    number = text("12,35", "office:value-type='float' office:value='12.3456'")
    day = text("01.05.26", "office:value-type='date' office:date-value='2026-05-01T00:00:00'")
    empty = "<table:table-row table:number-rows-repeated='1000000'><table:table-cell/></table:table-row>"
    rows = row(text("SKU"), text("EUR"), text("From")) + row(text("a<text:s text:c='1'/>b"), number, day) + empty
    path = _open_document(tmp_path / "a.ods", "spreadsheet", f"<table:table table:name='Prices'>{rows}</table:table>")
    extracted = extract(path)
    assert [(block.kind, block.text) for block in extracted.blocks] == [
        ("heading", "Prices"),
        ("table", "| SKU | EUR | From |\n| --- | --- | --- |\n| a b | 12.3456 | 2026-05-01 |"),
    ]


def test_an_open_document_presentation(tmp_path: Path) -> None:
    def frame(words: str, more: str = "") -> str:
        return f"<draw:frame {more}><draw:text-box><text:p>{words}</text:p></draw:text-box></draw:frame>"

    title = "presentation:class='title'"
    notes = f"<presentation:notes>{frame('Mention the date')}</presentation:notes>"
    body = f"<draw:page>{notes}{frame('Roadmap', title)}{frame('Ship in March')}</draw:page>"
    body += f"<draw:page>{frame('Costs', title)}</draw:page>"
    extracted = extract(_open_document(tmp_path / "a.odp", "presentation", body))
    assert [(block.page, block.kind, block.text) for block in extracted.blocks] == [
        (1, "heading", "Roadmap"),
        (1, "paragraph", "Ship in March"),
        (1, "paragraph", "Mention the date"),
        (2, "heading", "Costs"),
    ]
    with pytest.raises(PermanentError) as caught:
        extract(_open_document(tmp_path / "b.odp", "presentation", "<cut"))
    assert caught.value.code == "corrupt"


def test_the_footer_of_an_open_document_master_is_read_where_the_slides_say_nothing(tmp_path: Path) -> None:
    def frame(words: str, kind: str) -> str:
        box = f"<draw:text-box><text:p>{words}</text:p></draw:text-box>"
        return f"<draw:frame presentation:class='{kind}'>{box}</draw:frame>"

    path = _open_document(tmp_path / "a.odp", "presentation", "<draw:page draw:master-page-name='Default'/>")
    master = f"{frame('Click to edit', 'title')}{frame('Ana Ltd', 'footer')}{frame('1', 'page-number')}"
    style = "urn:oasis:names:tc:opendocument:xmlns:style:1.0"
    styles = f"<s:styles{SPACES} xmlns:s='{style}'><s:master-page s:name='Default'>{master}</s:master-page></s:styles>"
    assert _texts(extract(_changed(path, {"styles.xml": styles}))) == ["Ana Ltd"]


def _damaged(path: Path, member: str, content: bytes | None) -> Path:
    """A workbook without a member, or with other bytes as that."""
    book = openpyxl.Workbook()
    book.active.append(["a", 1])
    book.save(path)
    with zipfile.ZipFile(path) as source:
        members = {info.filename: source.read(info) for info in source.infolist()}
    del members[member]
    with zipfile.ZipFile(path, "w") as made:
        for name, old in members.items():
            made.writestr(name, old)
        if content is not None:
            made.writestr(member, content)
    return path


@pytest.mark.parametrize(
    ("member", "content"),
    [
        ("xl/worksheets/sheet1.xml", b"<worksheet><sheetData><row"),
        ("xl/worksheets/sheet1.xml", b'<worksheet xmlns="x"'),
        ("xl/workbook.xml", None),
        ("xl/styles.xml", b"\xff\xfe"),
        ("[Content_Types].xml", b"<Types/>"),
    ],
)
def test_a_damaged_workbook_is_called_so_and_its_place_is_not_told(
    tmp_path: Path, member: str, content: bytes | None
) -> None:
    with pytest.raises(PermanentError) as caught:
        extract(_damaged(tmp_path / "a.xlsx", member, content))
    assert caught.value.code == "corrupt"
    assert str(tmp_path) not in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize("content", [b"\x09\x08\x10\0\0\6\5\0" + bytes(200), b"\x09\x08" + b"\xff" * 600])
def test_a_damaged_old_workbook_is_called_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.xls"
    path.write_bytes(compound_file({"Workbook": content}))
    with pytest.raises(PermanentError) as caught:
        extract(path)
    assert caught.value.code == "corrupt"
    assert str(tmp_path) not in str(caught.value)
