"""Extraction needs no network and tries none, whatever the format."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import docx
import openpyxl
import pypandoc
import pytest
from fpdf import FPDF
from PIL import Image, ImageDraw, ImageFont
from pptx import Presentation

from pipelines.extract.isolation.process import environment
from pipelines.extract.ocr import installed_languages
from tests.fakes.epub import make_epub

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).resolve().parents[2]
SENTENCE = "The pump stops when the pressure falls below two bar."
LINKED = '<a href="http://example.org/a">here</a> <img src="http://example.org/b.png"/>'

# Notes what its own process tries, reads each file that is named, and prints what came of it.
_READ = """
import json, sys
from pathlib import Path
from pipelines.extract import extract
from pipelines.extract.isolation.sandbox import forbid_network
attempts = forbid_network()
found = {}
for name in sys.argv[1:]:
    document = extract(Path(name))
    found[Path(name).name] = [document.text, document.metadata.get("warnings", [])]
print(json.dumps([found, attempts]))
"""


def _docx(path: Path) -> None:
    document = docx.Document()
    document.add_heading("Pump", 1)
    document.add_paragraph(SENTENCE)
    document.save(str(path))


def _pptx(path: Path) -> None:
    show = Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text = "Pump"
    slide.placeholders[1].text = SENTENCE
    show.save(str(path))


def _xlsx(path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(["Note", "Link"])
    book.active.append([SENTENCE, "http://example.org/a"])
    book.save(path)


def _odt(path: Path) -> None:
    pypandoc.convert_text(SENTENCE, "odt", "markdown", outputfile=str(path))


def _epub(path: Path) -> None:
    make_epub(path, f"{SENTENCE} {LINKED}")


def _html(path: Path) -> None:
    path.write_text(
        '<!DOCTYPE html PUBLIC "x" "http://example.org/x.dtd"><html><head><link rel="stylesheet" '
        'href="http://example.org/a.css"/><script src="http://example.org/a.js"></script></head>'
        f"<body><p>{SENTENCE} {LINKED}</p></body></html>"
    )


def _eml(path: Path) -> None:
    path.write_bytes(
        b"From: Ana <ana@example.org>\r\nTo: bo@example.org\r\nSubject: Pump\r\nMIME-Version: 1.0\r\n"
        b"Content-Type: text/html; charset=utf-8\r\n\r\n" + f"<p>{SENTENCE} {LINKED}</p>\r\n".encode()
    )


def _pdf(path: Path) -> None:
    made = FPDF()
    made.add_page()
    made.set_font("Helvetica", size=11)
    made.multi_cell(0, 6, SENTENCE)
    made.output(str(path))


def _scan(path: Path) -> None:
    image = Image.new("L", (1600, 400), 255)
    ImageDraw.Draw(image).text((80, 80), SENTENCE, fill=0, font=ImageFont.load_default(40))
    image.save(path)


def _rtf(path: Path) -> None:
    path.write_text(r"{\rtf1\ansi " + SENTENCE + r"\par}")


def _text(path: Path) -> None:
    path.write_text(f"note,link\n{SENTENCE},http://example.org/a\n")


FILES: dict[str, Callable[[Path], None]] = {
    "a.docx": _docx,
    "a.pptx": _pptx,
    "a.xlsx": _xlsx,
    "a.odt": _odt,
    "a.epub": _epub,
    "a.html": _html,
    "a.eml": _eml,
    "a.pdf": _pdf,
    "a.rtf": _rtf,
    "a.csv": _text,
    "a.md": _text,
} | ({"a.png": _scan} if installed_languages() is not None else {})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One file of each format, all with the same sentence, some with addresses that could be fetched."""
    folder = tmp_path_factory.mktemp("files")
    for name, make in FILES.items():
        make(folder / name)
    return [folder / name for name in FILES]


def _read(files: list[Path], *before: str) -> None:
    """Read the files by way of the programs in `before`; no format may fail, and none may try the network."""
    done = subprocess.run(
        [*before, sys.executable, "-c", _READ, *map(str, files)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found, attempts = json.loads(done.stdout.splitlines()[-1])
    assert {name for name, (text, _) in found.items() if SENTENCE not in " ".join(text.split())} == set()
    assert {name: warnings for name, (_, warnings) in found.items() if "network" in str(warnings)} == {}
    assert attempts == []


def test_every_format_is_read_where_there_is_no_network(files: list[Path]) -> None:
    flags = "-n" if os.geteuid() == 0 else "-rn"
    if shutil.which("unshare") is None:
        pytest.skip("unshare (util-linux) is not installed")
    if subprocess.run(["unshare", flags, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("network namespaces are forbidden here")
    _read(files, "unshare", flags)


def test_no_process_asks_the_kernel_for_a_connection(files: list[Path], tmp_path: Path) -> None:
    """Also no program in C that a parser starts: seen from the kernel."""
    log = tmp_path / "log"
    tracer = ["strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-o", str(log)]
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    if subprocess.run([*tracer, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("processes may not be traced here")
    _read(files, *tracer)
    assert [line for line in log.read_text().splitlines() if "AF_INET" in line] == []


_LOAD = """
import json, os, sys, threading
from pipelines.extract.office.partition import prepare
from pipelines.extract.isolation.sandbox import forbid_network
attempts = forbid_network()
prepare()
for switch in sys.argv[1:]:
    del os.environ[switch]
import unstructured
from unstructured.partition.text import partition_text
partition_text(text="A sentence.")
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join(60)
print(json.dumps(attempts))
"""


def _attempts_of_unstructured(env: dict[str, str], *without: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, *without], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    attempts: list[str] = json.loads(done.stdout.splitlines()[-1])
    return attempts


def test_telemetry_of_unstructured_is_off(tmp_path: Path) -> None:
    ours = environment(tmp_path)
    switches = {"DO_NOT_TRACK", "SCARF_NO_ANALYTICS", "UNSTRUCTURED_DISABLE_NOTICE"}
    assert switches <= set(ours)
    bare = {name: value for name, value in ours.items() if name not in switches}
    assert _attempts_of_unstructured(bare) == []
    # The library does try where it is let, and that is seen.
    assert _attempts_of_unstructured(bare, *switches) != []
