"""PDFs made here, read in this process: structure, files within, and that no word is lost."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pypdfium2 as pdfium
import pytest
from fpdf import FPDF
from pypdf import PdfReader, PdfWriter
from pypdf.generic import (
    ArrayObject,
    BooleanObject,
    DictionaryObject,
    NameObject,
    NumberObject,
    StreamObject,
    TextStringObject,
)

from bench.extract import make_pdf
from pipelines.extract.attachments import Attachments
from pipelines.extract.job import Job
from pipelines.extract.registry import run_extractor
from pipelines.sniff import PDF
from pipelines.types import Extracted

ROOT = Path(__file__).resolve().parents[2]
PROSE = (
    "The pump stops when the pressure falls below two bar. The panel then shows a message that stays until somebody "
    "has opened the valve and pressed the button for three seconds. "
)
_WORD = re.compile(r"\w+")


def _made(path: Path, draw: Callable[[FPDF], None]) -> Path:
    made = FPDF(format="A4")
    made.set_font("Helvetica", size=11)
    made.add_page()
    draw(made)
    made.output(str(path))
    return path


def _read(path: Path, folder: Path | None = None) -> Extracted:
    return run_extractor(Job(path, PDF, attachments=Attachments(folder)))


def _at(made: FPDF, x: float, y: float, text: str) -> None:
    made.text(x, y, text)


def _prose(made: FPDF, words: int, seed: int = 1) -> None:
    chosen = random.Random(seed).choices(PROSE.split(), k=words)
    made.multi_cell(0, 6, " ".join(chosen), new_x="LMARGIN", new_y="NEXT")


STOCK = [
    ("SKU", "Article", "Price"),
    ("8842-B", "Pump seal", "12.50"),
    ("8843-C", "Valve with spring", "131.00"),
    ("8844-D", "Hose", "9.90"),
]


def test_rows_in_columns_are_a_table(tmp_path: Path) -> None:
    def draw(made: FPDF) -> None:
        _prose(made, 40)
        for row, cells in enumerate(STOCK):
            for x, cell in zip((20, 60, 130), cells, strict=True):
                _at(made, x, 80 + 6 * row, cell)

    tables = [block.text for block in _read(_made(tmp_path / "a.pdf", draw)).blocks if block.kind == "table"]
    assert tables == [
        "| SKU | Article | Price |\n| --- | --- | --- |\n| 8842-B | Pump seal | 12.50 |\n"
        "| 8843-C | Valve with spring | 131.00 |\n| 8844-D | Hose | 9.90 |"
    ]


def test_columns_that_are_drawn_one_after_the_other_are_a_table_too(tmp_path: Path) -> None:
    def draw(made: FPDF) -> None:
        for column, x in enumerate((20, 60, 130)):
            for row, cells in enumerate(STOCK):
                _at(made, x, 80 + 6 * row, cells[column])

    assert "| 8843-C | Valve with spring | 131.00 |" in _read(_made(tmp_path / "a.pdf", draw)).text


def test_the_second_line_of_a_cell_stays_in_it(tmp_path: Path) -> None:
    def draw(made: FPDF) -> None:
        y = 80
        for cells in STOCK * 2:
            for x, cell in zip((20, 60, 130), cells, strict=True):
                _at(made, x, y, cell)
            _at(made, 60, y + 4.5, "of stainless steel")
            y += 12

    assert "| 8843-C | Valve with spring of stainless steel | 131.00 |" in _read(_made(tmp_path / "a.pdf", draw)).text


def test_wide_gaps_in_prose_are_no_table(tmp_path: Path) -> None:
    def draw(made: FPDF) -> None:
        _at(made, 20, 30, "Name: Ana Meyer")
        _at(made, 120, 30, "Date of birth: 1 June")
        _at(made, 20, 36, "Ward:")
        _at(made, 90, 36, "Room 7, by the garden")
        made.set_y(60)
        _prose(made, 80)

    assert "|" not in _read(_made(tmp_path / "a.pdf", draw)).text


LEFT = [f"left line {number} of the first column runs" for number in range(12)]
RIGHT = [f"right line {number} of the other column goes" for number in range(12)]


@pytest.mark.parametrize("across", [False, True])
def test_two_columns_are_read_one_after_the_other(tmp_path: Path, across: bool) -> None:
    def draw(made: FPDF) -> None:
        pieces = [(20, row, text) for row, text in enumerate(LEFT)] + [
            (110, row, text) for row, text in enumerate(RIGHT)
        ]
        if across:
            pieces.sort(key=lambda piece: piece[1])
        for x, row, text in pieces:
            _at(made, x, 40 + 6 * row, text)

    text = " ".join(_read(_made(tmp_path / "a.pdf", draw)).text.split())
    assert " ".join(LEFT) in text
    assert " ".join(RIGHT) in text
    assert "|" not in text


def test_line_numbers_in_the_margin_do_not_cut_sentences(tmp_path: Path) -> None:
    words = (PROSE * 3).split()

    def draw(made: FPDF) -> None:
        for row in range(10):
            _at(made, 15, 40 + 9 * row, str(row + 1))
            _at(made, 40, 40 + 9 * row, " ".join(words[7 * row : 7 * row + 7]))

    text = " ".join(_read(_made(tmp_path / "a.pdf", draw)).text.split())
    assert " ".join(words[:70]) in text
    assert "1 2 3 4 5 6 7 8 9 10" in text


def test_running_lines_go_and_pages_keep_their_numbers(tmp_path: Path) -> None:
    extracted = _read(make_pdf(tmp_path / "a.pdf", 70, lines=3))
    assert extracted.text.count("Pump manual, third edition") == 1
    assert [block.page for block in extracted.blocks if block.kind == "heading"] == list(range(1, 71))
    assert not any(block.text.isdecimal() for block in extracted.blocks)
    assert extracted.title is None or "Pump manual" not in extracted.title


def test_the_outline_gives_the_levels(tmp_path: Path) -> None:
    def draw(made: FPDF) -> None:
        for level, name in enumerate(("Operation", "Faults", "Fault E-4012")):
            made.start_section(name, level=level)
            made.cell(text=f"{name}", new_x="LMARGIN", new_y="NEXT")
            _prose(made, 90, seed=level)

    headings = [
        (block.level, block.text) for block in _read(_made(tmp_path / "a.pdf", draw)).blocks if block.kind == "heading"
    ]
    assert headings == [(1, "Operation"), (2, "Faults"), (3, "Fault E-4012")]


def test_text_drawn_twice_is_read_once(tmp_path: Path) -> None:
    def draw(made: FPDF) -> None:
        for shift in (0, 0.1):
            _at(made, 20 + shift, 30, "Annual report")
            _at(made, 20 + shift, 40, "Pump works of the north")
        made.set_y(60)
        _prose(made, 60)

    text = _read(_made(tmp_path / "a.pdf", draw)).text
    assert text.count("Annual report") == 1
    assert text.count("Pump works of the north") == 1


def test_letters_drawn_one_by_one_are_words(tmp_path: Path) -> None:
    def draw(made: FPDF) -> None:
        x = 20.0
        for word in ("Here", "is", "some", "formatted", "text"):
            for letter in word:
                _at(made, x, 30, letter)
                x += made.get_string_width(letter) + 1.3
            x += 3

    assert _read(_made(tmp_path / "a.pdf", draw)).text == "Here is some formatted text"


def _with_form(path: Path) -> Path:
    def field(name: str, kind: str, value: object, **more: object) -> DictionaryObject:
        entries = {"/T": TextStringObject(name), "/FT": NameObject(kind), "/V": value}
        return DictionaryObject({NameObject(key): item for key, item in (entries | more).items()})  # type: ignore[dict-item]

    text = TextStringObject
    options = ArrayObject([ArrayObject([text("de"), text("Germany")]), ArrayObject([text("fr"), text("France")])])
    fields = [
        field("name", "/Tx", text("Ana Meyer")),
        field("empty", "/Tx", text("")),
        field("country", "/Ch", text("fr"), **{"/Opt": options}),
        field("colours", "/Ch", ArrayObject([text("red"), text("blue")])),
        field("agreed", "/Btn", NameObject("/Yes")),
        field("newsletter", "/Btn", NameObject("/Off")),
        field("size", "/Btn", NameObject("/large"), **{"/Ff": NumberObject(1 << 15)}),
        field("send", "/Btn", NameObject("/now"), **{"/Ff": NumberObject(1 << 16)}),
    ]
    writer = PdfWriter()
    writer.append(PdfReader(_made(path.with_suffix(".plain"), lambda made: _prose(made, 30))))
    form = {
        "/Fields": ArrayObject([writer._add_object(one) for one in fields]),
        "/NeedAppearances": BooleanObject(True),
    }
    writer.root_object[NameObject("/AcroForm")] = DictionaryObject(
        {NameObject(key): item for key, item in form.items()}
    )
    writer.write(path)
    return path


def test_forms_are_read_whatever_their_fields_are(tmp_path: Path) -> None:
    assert _read(_with_form(tmp_path / "a.pdf")).blocks[-1].text.splitlines() == [
        "name: Ana Meyer",
        "country: France",
        "colours: red, blue",
        "agreed: Yes",
        "size: large",
    ]


def test_files_within_are_taken_out(tmp_path: Path) -> None:
    writer = PdfWriter()
    writer.append(PdfReader(_made(tmp_path / "plain.pdf", lambda made: _prose(made, 30))))
    writer.add_attachment("prices.csv", b"SKU,Price\n8842-B,12.50\n")
    content = StreamObject()
    content.set_data(b"a note")
    spec = {"/Type": NameObject("/Filespec"), "/F": TextStringObject("note.txt")}
    spec["/EF"] = DictionaryObject({NameObject("/F"): writer._add_object(content)})
    note = {
        "/Type": NameObject("/Annot"),
        "/Subtype": NameObject("/FileAttachment"),
        "/Rect": ArrayObject([NumberObject(edge) for edge in (10, 10, 30, 30)]),
        "/FS": DictionaryObject({NameObject(key): item for key, item in spec.items()}),
    }
    pinned = writer._add_object(DictionaryObject({NameObject(key): item for key, item in note.items()}))
    writer.pages[0][NameObject("/Annots")] = ArrayObject([pinned])
    writer.write(tmp_path / "a.pdf")
    (tmp_path / "out").mkdir()
    extracted = _read(tmp_path / "a.pdf", tmp_path / "out")
    assert [one.name for one in extracted.attachments] == ["prices.csv", "note.txt"]
    assert [Path(one.path or "").read_bytes() for one in extracted.attachments] == [
        b"SKU,Price\n8842-B,12.50\n",
        b"a note",
    ]


def test_permissions_do_not_keep_a_file_from_its_owners_search(tmp_path: Path) -> None:
    writer = PdfWriter()
    writer.append(PdfReader(_made(tmp_path / "plain.pdf", lambda made: _prose(made, 30))))
    writer.encrypt("", owner_password="owner", permissions_flag=0, algorithm="AES-256")
    writer.write(tmp_path / "a.pdf")
    assert "three panel falls" in " ".join(_read(tmp_path / "a.pdf").text.split())


def _random_page(made: FPDF, seed: int) -> None:
    """Words anywhere: columns, tables, rotated pieces, sizes, overlaps."""
    dice = random.Random(seed)
    for _ in range(dice.randint(3, 12)):
        made.set_font("Helvetica", style=dice.choice(["", "B"]), size=dice.choice([6, 9, 11, 11, 11, 18]))
        words = [dice.choice(PROSE.split()) + str(dice.randint(0, 99)) for _ in range(dice.randint(1, 60))]
        shape = dice.randint(0, 4)
        x, y = dice.uniform(10, 120), dice.uniform(15, 240)
        if shape == 0:
            made.set_xy(x, y)
            made.multi_cell(dice.uniform(25, 80), 5, " ".join(words[:30]))
        elif shape == 1:
            for index, word in enumerate(words[:24]):
                _at(made, 15 + 40 * (index % 4), min(280, y + 6 * (index // 4)), word)
        elif shape == 2:
            with made.rotation(dice.choice([90, 180, 270]), x, y):
                _at(made, x, y, " ".join(words[:6]))
        elif shape == 3:
            for index, word in enumerate(words[:12]):
                _at(made, x, min(285, y + 5 * index), word)
        else:
            _at(made, 15, y, " ".join(words[:12]))


@pytest.mark.parametrize("seed", range(40))
def test_no_word_is_lost(tmp_path: Path, seed: int) -> None:
    path = _made(tmp_path / "a.pdf", lambda made: _random_page(made, seed))
    with pdfium.PdfDocument(path) as document:
        text = document[0].get_textpage().get_text_range()
    wanted = _WORD.findall(re.sub("[\x02\ufffe]\\s*", "", unicodedata.normalize("NFKC", text)))
    found = "".join(_WORD.findall(_read(path).text))
    assert wanted
    assert [word for word in wanted if word not in found] == []


def test_memory_grows_with_the_text_only(tmp_path: Path) -> None:
    program = (
        "import resource, sys\nfrom pathlib import Path\nfrom pipelines.extract.job import Job\n"
        "from pipelines.extract.pdf import extract_pdf\n"
        "found = extract_pdf(Job(Path(sys.argv[1]), 'application/pdf'))\n"
        "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "print(sum(len(block.text) for block in found.blocks), peak)"
    )
    # A process begins with the peak of the one that started it, so that has to be a small one, which this is not.
    small = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]], check=True)"
    lengths, peaks = [], []
    for pages in (100, 1_000):
        path = make_pdf(tmp_path / f"{pages}.pdf", pages)
        arguments = [sys.executable, "-c", small, program, str(path)]
        done = subprocess.run(arguments, check=True, capture_output=True, cwd=ROOT)
        length, peak = map(int, done.stdout.split())
        lengths.append(length)
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 6 * (lengths[1] - lengths[0])
