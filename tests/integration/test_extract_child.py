"""Formats that are read in a child process, on real files made here."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import docx
import openpyxl
import psutil
import pytest
from fpdf import FPDF
from PIL import Image, ImageDraw, ImageFont
from pptx import Presentation
from pypdf import PdfReader, PdfWriter

from pipelines import sniff
from pipelines.errors import GristmillError, PermanentError, RetryableError
from pipelines.extract import ExtractRules, extract
from pipelines.extract.attachments import Attachments
from pipelines.extract.isolation import process
from pipelines.extract.isolation.child import _failed
from pipelines.extract.job import Job
from pipelines.extract.ocr import Recognised, installed_languages
from pipelines.extract.registry import run_extractor
from pipelines.types import Extracted

needs_tesseract = pytest.mark.skipif(installed_languages() is None, reason="tesseract is not installed")
ROOT = Path(__file__).resolve().parents[2]


def _pdf(path: Path, pages: list[list[tuple[int, str]]], title: str | None = None) -> Path:
    made = FPDF()
    made.set_title(title or "")
    for page in pages:
        made.add_page()
        for size, text in page:
            made.set_font("Helvetica", size=size)
            made.multi_cell(0, size * 0.5, text, new_x="LMARGIN", new_y="NEXT")
            made.ln(4)
    made.output(str(path))
    return path


def _picture(text: str) -> Image.Image:
    image = Image.new("L", (1240, 900), 255)
    ImageDraw.Draw(image).multiline_text((80, 80), text, fill=0, font=ImageFont.load_default(40), spacing=24)
    return image


def _code(path: Path, rules: ExtractRules | None = None) -> str:
    with pytest.raises(GristmillError) as caught:
        extract(path, rules=rules or ExtractRules())
    assert isinstance(caught.value, PermanentError)
    assert caught.value.cause
    assert caught.value.remedy
    return caught.value.code


def _run(path: Path) -> tuple[Extracted, list[tuple[int, int]]]:
    seen: list[tuple[int, int]] = []
    extracted = extract(path, progress=lambda page, pages: seen.append((page, pages)))
    return extracted, seen


LONG = "The pump stops when the pressure falls below two bar, and the panel shows error E-4012 until it is reset. "
ENDLESS = 4500
"""Pages of which not all fits into the pipe that is said: the child never comes to its end while nobody listens."""


def test_a_text_pdf(tmp_path: Path) -> None:
    path = _pdf(tmp_path / "a.pdf", [[(20, "Pump manual"), (11, LONG * 3)], [(11, "Second page. " * 10)]], "Manual 7")
    extracted, seen = _run(path)
    assert extracted.mime == "application/pdf"
    assert extracted.title == "Manual 7"
    assert extracted.blocks[0].kind == "heading"
    assert extracted.blocks[0].text == "Pump manual"
    assert extracted.blocks[1].text == (LONG * 3).strip()
    assert [block.page for block in extracted.blocks] == [1, 1, 2]
    assert [(page.decision, page.reason) for page in extracted.pages] == [("text", "text-layer")] * 2
    assert seen == [(1, 2), (2, 2)]


def test_a_pdf_named_docx_is_a_pdf(tmp_path: Path) -> None:
    path = _pdf(tmp_path / "a.docx", [[(11, LONG)]])
    assert extract(path).mime == "application/pdf"


@needs_tesseract
def test_only_the_scanned_page_is_read_by_ocr(tmp_path: Path) -> None:
    scan = tmp_path / "scan.pdf"
    _picture("Error E-4013 means that\nthe cooling water is too warm.").save(scan, "PDF", resolution=150)
    text = _pdf(tmp_path / "text.pdf", [[(11, LONG)]])
    both, blank = tmp_path / "both.pdf", PdfWriter()
    blank.append(PdfReader(text))
    blank.append(PdfReader(scan))
    blank.add_blank_page(600, 800)
    blank.write(both)
    extracted = extract(both)
    assert [page.decision for page in extracted.pages] == ["text", "ocr", "blank"]
    assert extracted.pages[1].reason == "no-text"
    assert (extracted.pages[1].confidence or 0) > 60
    assert "cooling water" in " ".join(block.text for block in extracted.blocks if block.page == 2)
    assert extracted.metadata["ocr_pages"] == [2]


@needs_tesseract
def test_images_of_one_and_of_several_pages(tmp_path: Path) -> None:
    single = tmp_path / "a.png"
    _picture("Invoice number 8842").save(single)
    assert "8842" in extract(single).text
    paged = tmp_path / "a.tiff"
    _picture("First sheet").save(paged, save_all=True, append_images=[_picture("Second sheet")])
    extracted, seen = _run(paged)
    assert [block.page for block in extracted.blocks] == [1, 2]
    assert "Second sheet" in extracted.blocks[1].text
    assert seen == [(1, 2), (2, 2)]


def test_without_tesseract_a_scan_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = tmp_path / "scan.pdf"
    _picture("nothing can read this").save(scan, "PDF", resolution=150)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PermanentError) as caught:
        extract(scan)
    assert caught.value.code == "ocr_unavailable"
    assert caught.value.cause == "page 1 is a scan and tesseract is not installed"
    assert "apt-get install tesseract-ocr tesseract-ocr-fra" in caught.value.remedy


@needs_tesseract
def test_missing_language_data_is_a_warning_unless_all_is_missing(tmp_path: Path) -> None:
    scan = tmp_path / "scan.pdf"
    _picture("English words only").save(scan, "PDF", resolution=150)
    extracted = extract(scan, rules=ExtractRules(ocr_languages="eng+xyz"))
    assert "English words" in extracted.text
    assert "xyz" in extracted.metadata["warnings"][0]
    assert _code(scan, ExtractRules(ocr_languages="xyz")) == "ocr_unavailable"


@needs_tesseract
def test_a_page_on_which_ocr_runs_out_of_time_is_named(tmp_path: Path) -> None:
    scan = tmp_path / "scan.pdf"
    _picture("slow\n" * 10).save(scan, "PDF", resolution=150)
    with pytest.raises(PermanentError) as caught:
        extract(scan, rules=ExtractRules(ocr_page_seconds=0.001))
    assert caught.value.code == "no_text"
    assert "page 1" in caught.value.cause
    assert "ocr-timeout" in caught.value.cause


def _encrypted(path: Path) -> Path:
    writer = PdfWriter()
    writer.append(PdfReader(_pdf(path.with_suffix(".clear"), [[(11, LONG)]])))
    writer.encrypt("secret", algorithm="AES-256")
    writer.write(path)
    return path


def _truncated(path: Path) -> Path:
    path.write_bytes(_pdf(path.with_suffix(".whole"), [[(11, LONG)]]).read_bytes()[:60])
    return path


def _blank(path: Path) -> Path:
    writer = PdfWriter()
    writer.add_blank_page(600, 800)
    writer.write(path)
    return path


def _many_pages(path: Path, count: int = 100_000) -> Path:
    """A page tree that names one page object so many times."""
    kids = b"3 0 R " * count
    text = f"BT /F 9 Tf 20 700 Td ({LONG}) Tj ET".encode()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count %d/Kids[%s]>>" % (count, kids),
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(text), text),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    data, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj%s endobj\n" % (number, content)
    xref = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    start = len(data)
    size = len(objects) + 1
    data += b"xref\n0 %d\n0000000000 65535 f \n" % size + xref
    path.write_bytes(data + b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (size, start))
    return path


def _broken_png(path: Path) -> Path:
    _picture("cut").save(path, "PNG")
    path.write_bytes(path.read_bytes()[:300])
    return path


def _bomb_docx(path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("[Content_Types].xml", "<Types/>")
        with made.open("word/document.xml", "w") as member:
            for _ in range(80):
                member.write(b" " * 2**20)
    return path


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (_encrypted, "encrypted"),
        (_truncated, "corrupt"),
        (_blank, "no_text"),
        (_many_pages, "too_many_pages"),
        (_bomb_docx, "bomb"),
        pytest.param(_broken_png, "corrupt", marks=needs_tesseract),
    ],
)
def test_bad_files_end_as_one_clear_error(tmp_path: Path, make: Callable[[Path], Path], code: str) -> None:
    start = time.monotonic()
    assert _code(make(tmp_path / "bad")) == code
    assert time.monotonic() - start < 60


def test_word(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    document = docx.Document()
    document.core_properties.title = "Lease"
    document.core_properties.author = "Ana"
    document.add_heading("Lease contract", 1)
    document.add_heading("Rent", 2)
    document.add_paragraph("The rent is due on the first day of each month.")
    document.add_paragraph("first point", style="List Bullet")
    table = document.add_table(2, 2)
    for row, cells in enumerate((("SKU", "Price"), ("8842-B", "12.50"))):
        for column, text in enumerate(cells):
            table.cell(row, column).text = text
    document.save(str(path))
    extracted = extract(path)
    assert extracted.title == "Lease"
    assert extracted.metadata["author"] == "Ana"
    assert [(block.kind, block.level) for block in extracted.blocks[:3]] == [
        ("heading", 1),
        ("heading", 2),
        ("paragraph", 0),
    ]
    assert ("list", "first point") in [(block.kind, block.text) for block in extracted.blocks]
    assert extracted.blocks[-1].text == "| SKU | Price |\n| --- | --- |\n| 8842-B | 12.50 |"


def test_excel_and_powerpoint(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.title = "Prices"
    for row in (("SKU", "Price"), ("8842-B", 12.5)):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    extracted = extract(tmp_path / "a.xlsx")
    assert [(block.kind, block.text) for block in extracted.blocks] == [
        ("heading", "Prices"),
        ("table", "| SKU | Price |\n| --- | --- |\n| 8842-B | 12.5 |"),
    ]
    show = Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text = "Roadmap"
    slide.placeholders[1].text = "Ship the pump in March"
    show.save(str(tmp_path / "a.pptx"))
    extracted = extract(tmp_path / "a.pptx")
    assert extracted.title == "Roadmap"
    assert extracted.blocks[-1].text == "Ship the pump in March"
    assert extracted.blocks[-1].page == 1


def test_mail(tmp_path: Path) -> None:
    path = tmp_path / "a.eml"
    path.write_bytes(
        b"From: Ana <ana@example.org>\r\nTo: bo@example.org\r\nSubject: =?utf-8?q?R=C3=A9union?=\r\n"
        b"Date: Mon, 1 Jun 2026 10:00:00 +0000\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
        b"The meeting is moved to Friday.\r\n"
    )
    extracted = extract(path)
    assert extracted.title == "Réunion"
    assert "moved to Friday" in extracted.text
    assert extracted.metadata["author"] == "Ana <ana@example.org>"
    path.write_bytes(
        b"From: a@b.c\r\nTo: d@e.f\r\nSubject: x\r\nContent-Type: multipart/encrypted; boundary=q\r\n\r\n--q--\r\n"
    )
    assert _code(path) == "encrypted"


def test_a_file_that_takes_too_long(tmp_path: Path) -> None:
    path = _pdf(tmp_path / "a.pdf", [[(11, LONG)]] * 60)
    assert _code(path, ExtractRules(seconds=0.05)) == "extract_timeout"


@pytest.mark.parametrize("name", ["a.pdf", "a.html"])
def test_wherever_memory_ends_the_error_is_one_of_memory(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "a.pdf":
        _pdf(path, [[(11, LONG)]] * 60)
    else:
        path.write_text(f"<html><body><article>{f'<p>{LONG}</p>' * 60}</article></body></html>")
    # While the interpreter starts, in the middle of an import, as a shared library is mapped, in the parser.
    found = set()
    for megabytes in range(8, 44, 4):
        try:
            found.add(_code(path, ExtractRules(memory_mb=megabytes)))
        except pytest.fail.Exception:
            # A machine whose interpreter is smaller may have read it.
            assert megabytes > 24
    assert found == {"out_of_memory"}


def test_where_no_memory_is_left_to_tell_of_an_error_the_error_is_one_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, types\n"
        "from pipelines.extract.isolation import sandbox\n"
        "def fail(job): raise ValueError\n"
        "def fail_again(rules): raise MemoryError\n"
        "sys.modules['pipelines.extract.pdf'] = types.SimpleNamespace(extract_pdf=fail)\n"
        "sandbox.near_its_memory = fail_again\n"
    )
    usual = process.environment

    def environment(scratch: Path) -> dict[str, str]:
        found = usual(scratch)
        return found | {"PYTHONPATH": os.pathsep.join([str(tmp_path), found["PYTHONPATH"]])}

    monkeypatch.setattr(process, "environment", environment)
    assert _code(_pdf(tmp_path / "a.pdf", [[(11, LONG)]])) == "out_of_memory"


def test_the_kernel_ends_what_no_clock_of_ours_does() -> None:
    program = (
        "from pipelines.extract.isolation.sandbox import limit; from pipelines.extract.rules import ExtractRules\n"
        "limit(ExtractRules(seconds=0.1))\n"
        "while True: pass"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, timeout=100)
    assert done.returncode == -signal.SIGXCPU


def test_a_callback_that_raises_ends_the_child(tmp_path: Path) -> None:
    class FencedError(Exception):
        """What a worker that lost its lease would raise."""

    def refuse(page: int, pages: int) -> None:
        raise FencedError

    path = _pdf(tmp_path / "a.pdf", [[(11, LONG)]] * 3)
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(FencedError):
        extract(path, progress=refuse)
    assert set(psutil.Process().children(recursive=True)) <= before


def test_a_kill_from_outside_may_be_tried_again(tmp_path: Path) -> None:
    def kill(page: int, pages: int) -> None:
        for child in psutil.Process().children():
            if page == 1 and "pipelines.extract.isolation.child" in child.cmdline():
                child.send_signal(signal.SIGSTOP)
                child.kill()

    with pytest.raises(RetryableError) as caught:
        extract(_many_pages(tmp_path / "a.pdf", ENDLESS), progress=kill)
    assert caught.value.code == "parser_killed"


def test_a_crash_names_the_page(tmp_path: Path) -> None:
    def crash(page: int, pages: int) -> None:
        for child in psutil.Process().children():
            if page == 1 and "pipelines.extract.isolation.child" in child.cmdline():
                child.send_signal(signal.SIGSEGV)

    with pytest.raises(PermanentError) as caught:
        extract(_many_pages(tmp_path / "a.pdf", ENDLESS), progress=crash)
    assert caught.value.code == "parser_crashed"
    assert f"of {ENDLESS}" in caught.value.cause


@needs_tesseract
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses the parent-death signal of Linux")
def test_child_and_tesseract_die_with_their_parent(tmp_path: Path) -> None:
    scan = tmp_path / "scan.tiff"
    page = _picture("word " * 8 + "\n" + ("many more words on this page\n" * 12)).resize((3720, 2700))
    page.save(scan, save_all=True, append_images=[page] * 4)
    program = f"from pathlib import Path; from pipelines.extract import extract; extract(Path({str(scan)!r}))"
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    family = _wait_for(lambda: _with_tesseract(parent.pid), 60)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []


def _with_tesseract(pid: int) -> list[psutil.Process] | None:
    found = psutil.Process(pid).children(recursive=True)
    try:
        return found if any(process.name() == "tesseract" for process in found) else None
    except psutil.NoSuchProcess:
        return None


def _wait_for(look: Callable[[], list[psutil.Process] | None], seconds: float) -> list[psutil.Process]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("tesseract was never started")


def test_python_in_the_child_has_no_network() -> None:
    program = (
        "import socket, sys; from pipelines.extract.isolation.child import forbid_network; forbid_network()\n"
        "try: socket.create_connection(('127.0.0.1', 9), 1)\n"
        "except PermissionError as error: sys.exit('network' not in str(error))\n"
        "sys.exit(3)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_the_environment_is_an_allow_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("GRISTMILL_DATABASE_URL", "postgresql://secret")
    passed = process.environment(tmp_path)
    assert "secret" not in " ".join(passed.values())
    assert passed["OMP_THREAD_LIMIT"] == passed["DO_NOT_TRACK"] == passed["SCARF_NO_ANALYTICS"] == "1"


def test_strict_office_files_are_read(tmp_path: Path) -> None:
    usual, strict = tmp_path / "usual.docx", tmp_path / "strict.docx"
    document = docx.Document()
    document.add_heading("Terms", 1)
    document.add_paragraph("Delivery takes nine days.")
    document.save(str(usual))
    with zipfile.ZipFile(usual) as source, zipfile.ZipFile(strict, "w") as made:
        for member in source.infolist():
            content = re.sub(
                rb"http://schemas\.openxmlformats\.org/(officeDocument|wordprocessingml|drawingml)/2006/",
                rb"http://purl.oclc.org/ooxml/\1/",
                source.read(member),
            )
            made.writestr(member.filename, content)
    assert extract(strict).blocks == extract(usual).blocks


@needs_tesseract
def test_guesses_of_ocr_do_not_become_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = tmp_path / "noise.png"
    _picture("Invoice number 8842").save(image)
    found = Recognised(("¥ED¥EMY WEES",), 30.6)
    monkeypatch.setattr("pipelines.extract.ocr.recognise", lambda *_: found)
    with pytest.raises(PermanentError) as caught:
        run_extractor(Job(image, "image/png"))
    assert caught.value.code == "no_text"
    assert "ocr-unsure" in caught.value.cause


def test_the_current_directory_cannot_pose_as_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    assert "E-4012" in extract(_pdf(tmp_path / "a.pdf", [[(11, LONG)]])).text


def test_what_a_parser_says_is_told_without_this_machine_s_paths(tmp_path: Path) -> None:
    path = tmp_path / "a spooled file.docx"
    path.write_bytes(b"x")
    attachments = tmp_path / "attachments"
    job = Job(path, sniff.DOCX, attachments=Attachments(attachments))
    copy = Path(tempfile.gettempdir()) / "gristmill-x" / "document.docx"
    cause = FileNotFoundError(2, "No such file", str(copy))
    said = ValueError(f"cannot read {path} nor {str(path)!r}, nor {attachments / '0001.pdf'}: {cause}" + "x" * 500)
    error = _failed(said, job, 0)
    assert error.code == "parser_failed"
    assert "cannot read the file nor 'the file', nor a temporary file" in error.cause
    assert "No such file: 'a temporary file'" in error.cause
    assert tempfile.gettempdir() not in error.cause
    assert str(tmp_path) not in error.cause
