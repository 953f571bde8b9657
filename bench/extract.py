"""`python -m bench extract`: pages of text PDFs a processor second, beside bare pypdfium2 and pypdf.

Ours is all that `pipelines.extract.extract` costs, user and system time, its child process included: the start of
the child, which pages need OCR, headings, tables, running headers, sanitising, the way back. Bare pypdfium2 opens
the file and takes the text of each page, in a process of its own; pypdf likewise.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pipelines.extract import ExtractRules, extract

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"
NAMES = (
    "unstructured__DA-619p.pdf",
    "pdfplumber__WARN-Report-for-7-1-2015-to-03-25-2016.pdf",
)
TARGET = 0.6

_PDFIUM = """
import sys, pypdfium2
document = pypdfium2.PdfDocument(sys.argv[1])
for index in range(len(document)):
    page = document[index]
    text = page.get_textpage()
    text.get_text_range()
    text.close()
    page.close()
"""
_PYPDF = """
import logging, sys, pypdf
logging.disable(logging.CRITICAL)
for page in pypdf.PdfReader(sys.argv[1]).pages:
    page.extract_text()
"""


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 where ours is slower than `TARGET` of bare pypdfium2's pages a second."""
    parser = argparse.ArgumentParser(prog="python -m bench extract", description=__doc__)
    parser.add_argument(
        "files", nargs="*", type=Path, help="text PDFs; default: a made one, and those of the shared corpus"
    )
    parser.add_argument("--rounds", type=int, default=3, help="the median of so many is taken")
    parser.add_argument("--no-pypdf", action="store_true", help="leave out pypdf, which is slow")
    parser.add_argument("--memory", action="store_true", help="peak memory of the child at 200 and 2,000 pages instead")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if options.memory:
            return _print_memory(Path(folder))
        files = options.files or [
            *(CORPUS / name for name in NAMES if (CORPUS / name).is_file()),
            make_pdf(Path(folder) / "made.pdf", 600),
        ]
        return _print_speed(files, options.rounds, pypdf=not options.no_pypdf)


def _print_speed(files: Sequence[Path], rounds: int, *, pypdf: bool) -> int:
    readers: dict[str, Callable[[Path], object]] = {"gristmill": _read, "pypdfium2": _run(_PDFIUM)}
    if pypdf:
        readers["pypdf"] = _run(_PYPDF)
    print(f"{'pages a CPU second':<60} {'pages':>6}" + "".join(f" {name:>10}" for name in readers) + f" {'ratio':>6}")
    # An installed package is compiled; a checkout's is when it is first imported, which the child may not keep.
    importlib.import_module("pipelines.extract.pdf")
    pages, total = 0, dict.fromkeys(readers, 0.0)
    for path in files:
        count = len(_read(path))
        seconds = {name: [] for name in readers}  # type: dict[str, list[float]]
        for _ in range(rounds):
            # In turns, so that what else the machine does falls on all of them.
            for name, read in readers.items():
                seconds[name].append(_cpu(read, path))
        middle = {name: statistics.median(found) for name, found in seconds.items()}
        pages += count
        total = {name: total[name] + middle[name] for name in readers}
        _print_row(path.name, count, middle)
    _print_row("all", pages, total)
    return 0 if total["pypdfium2"] >= TARGET * total["gristmill"] else 1


def _print_row(name: str, pages: int, seconds: dict[str, float]) -> None:
    rates = "".join(f" {pages / found:>10.0f}" for found in seconds.values())
    print(f"{name:<60} {pages:>6}{rates} {seconds['pypdfium2'] / seconds['gristmill']:>6.2f}")


def _read(path: Path) -> Sequence[object]:
    return extract(path, rules=ExtractRules(max_pages=10_000)).pages


def _run(program: str) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        subprocess.run([sys.executable, "-c", program, str(path)], check=True, stderr=subprocess.DEVNULL)

    return run


def _cpu(read: Callable[[Path], object], path: Path) -> float:
    """User and system seconds of this process and of the children that end meanwhile."""

    def spent() -> float:
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system

    before = spent()
    read(path)
    return spent() - before


def _print_memory(folder: Path) -> int:
    """Peak resident memory of the child, each size in a fresh process: children keep the peak of the largest."""
    program = (
        "import resource, sys; from pathlib import Path; from pipelines.extract import extract\n"
        "text = extract(Path(sys.argv[1])).text\n"
        "print(len(text), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    for pages in (200, 2_000):
        path = make_pdf(folder / f"{pages}.pdf", pages)
        done = subprocess.run([sys.executable, "-c", program, str(path)], check=True, capture_output=True, text=True)
        length, peak = map(int, done.stdout.split())
        print(f"{pages:>6} pages, {length / 1e6:6.2f} million characters: peak {peak / 1024:6.1f} MiB")
    return 0


def make_pdf(path: Path, pages: int, lines: int = 44) -> Path:
    """A PDF of that many pages of prose with a heading, a running header and a page number on each."""
    first = 5  # objects before the pages: catalogue, page tree, two fonts
    kids = " ".join(f"{first + 2 * index} 0 R" for index in range(pages))
    bodies = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Count {pages}/Kids[{kids}]>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica-Bold/Encoding/WinAnsiEncoding>>",
    ]
    for number in range(1, pages + 1):
        stream = "\n".join(_drawn(number, lines))
        bodies.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Resources<</Font<</F0 3 0 R/F1 4 0 R>>>>"
            f"/Contents {first + 2 * number - 1} 0 R>>"
        )
        bodies.append(f"<</Length {len(stream)}>>stream\n{stream}\nendstream")
    data, offsets = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(bodies, 1):
        offsets.append(len(data))
        data += f"{number} 0 obj{body}endobj\n".encode()
    start = len(data)
    data += f"xref\n0 {len(bodies) + 1}\n0000000000 65535 f \n".encode()
    data += "".join(f"{offset:010} 00000 n \n" for offset in offsets).encode()
    data += f"trailer<</Size {len(bodies) + 1}/Root 1 0 R>>\nstartxref\n{start}\n%%EOF".encode()
    path.write_bytes(data)
    return path


def _drawn(number: int, lines: int) -> Iterator[str]:
    def put(text: str, y: int, size: int = 11, font: int = 0) -> str:
        return f"BT /F{font} {size} Tf 60 {y} Td ({text}) Tj ET"

    yield put("Pump manual, third edition", 805, 9)
    yield put(f"{number}. On fault {number}", 770, 15, 1)
    for line in range(lines):
        code = number * lines + line
        text = f"The pump stops at pressure {code} and the panel shows error E-{code} until somebody resets it."
        yield put(text, 740 - 15 * line)
    yield put(str(number), 40, 9)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
