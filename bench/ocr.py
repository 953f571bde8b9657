"""OCR of pages whose text is known: how much of it is read right, and how fast beside Tesseract by hand.

Accuracy: a page of English and one of French prose are set in Times, 11 points, and drawn at 150 and 300 dpi: clean,
with noise (contrast reduced to 60 %, grain of standard deviation 20, one pixel in fifty black or white), turned by 90
degrees, and askew by 2. Accuracy is 1 - d / n: n characters in the prose, d the edits (characters inserted, deleted,
replaced) that turn what was read into it; white space of any kind and length counts as one space in both.

Speed: pages of both, 400 words, clean, at 200 dpi, once as files of one page and once as one file, through
`pipelines.extract.recognise`, and as files through the program `tesseract` with the same languages and the same
segmentation mode, one process at a time with one thread. Seconds are processor seconds, of all processes begun.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.prose import ENGLISH, FRENCH, photograph, typeset
from pipelines.extract import ExtractRules, recognise
from pipelines.types import OcrPage

LANGUAGES = "eng+fra"
MODE = "3"
RESOLUTIONS = (150, 300)
SPEED_DPI = 200
SKEW = 2.0


@dataclass(frozen=True, slots=True)
class Accuracy:
    """One page: how it was made, and how much of it was read right."""

    language: str
    dpi: int
    condition: str
    accuracy: float
    confidence: float | None


@dataclass(frozen=True, slots=True)
class Speed:
    """One way to read the pages: its cost, and how many pages a minute that is with one core."""

    way: str
    pages: int
    cpu_seconds: float
    wall_seconds: float

    @property
    def pages_a_minute(self) -> float:
        """By processor seconds: what else the machine does hardly counts."""
        return 60 * self.pages / self.cpu_seconds


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print; 0 unless something could not be read, which raises."""
    parser = argparse.ArgumentParser(prog="python -m bench ocr", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pages", type=int, default=10, help="pages to measure the speed with (10)")
    parser.add_argument("--json", action="store_true", help="answer as JSON")
    options = parser.parse_args(arguments)
    os.environ["OMP_THREAD_LIMIT"] = "1"
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-") as folder:
        accuracies = list(accuracy(Path(folder)))
        speeds = speed(Path(folder), options.pages)
    if options.json:
        print(json.dumps({"accuracy": [asdict(one) for one in accuracies], "speed": [asdict(one) for one in speeds]}))
    else:
        show(accuracies, speeds, Console())
    return 0


def accuracy(folder: Path) -> Iterator[Accuracy]:
    """Read one page for each language, resolution and condition."""
    made = list(_pages())
    path = folder / "page.png"
    for (language, dpi, condition), prose, picture in track(made, "accuracy", console=Console(stderr=True)):
        picture.save(path, compress_level=1)
        [page] = read(path, [1])
        yield Accuracy(language, dpi, condition, characters_right(prose, page.text), page.confidence)


def _pages() -> Iterator[tuple[tuple[str, int, str], str, Image.Image]]:
    for language, prose in (("English", ENGLISH), ("French", FRENCH)):
        document = typeset(prose)
        for dpi in RESOLUTIONS:
            clean = photograph(document, dpi)
            conditions = {
                "clean": clean,
                "noise": noisy(clean),
                "turned by 90": clean.transpose(Image.Transpose.ROTATE_90),
                "askew by 2": clean.rotate(SKEW, Image.Resampling.BICUBIC, expand=True, fillcolor=255),
            }
            for condition, picture in conditions.items():
                yield (language, dpi, condition), prose, picture
        document.close()


def noisy(clean: Image.Image) -> Image.Image:
    """The page as a poor copy of it, the same one every time."""
    random = np.random.default_rng(0)
    values = np.asarray(clean, dtype=np.float32) * 0.6 + 60
    values += random.normal(0, 20, values.shape)
    specks = random.random(values.shape)
    values[specks < 0.01], values[specks > 0.99] = 0, 255
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


def characters_right(truth: str, read: str) -> float:
    """1 - (Levenshtein distance / length of the truth), white space folded; 0 at the least."""
    wanted, got = " ".join(truth.split()), " ".join(read.split())
    return max(0.0, 1 - edits(wanted, got) / len(wanted))


def edits(one: str, other: str) -> int:
    """Levenshtein distance, a row of the table at a time."""
    target = np.array([ord(char) for char in other], dtype=np.int64)
    steps = np.arange(target.size + 1)
    row = steps.copy()
    for char in one:
        best = np.minimum(row[1:] + 1, row[:-1] + (target != ord(char)))
        # An insertion costs one a step from the best before it: a running minimum with the steps taken off.
        row = np.minimum.accumulate(np.concatenate(([row[0] + 1], best)) - steps) + steps
    return int(row[-1])


def speed(folder: Path, count: int) -> list[Speed]:
    """Read `count` pages in each way; the first is Tesseract by hand."""
    both = (f"{ENGLISH}\n{FRENCH}", f"{FRENCH}\n{ENGLISH}")
    pages = [photograph(typeset(prose), SPEED_DPI) for prose in both]
    pictures = [pages[number % 2] for number in range(count)]
    files = []
    for number, picture in enumerate(pictures):
        files.append(folder / f"page-{number:03}.png")
        picture.save(files[-1])
    whole = folder / "pages.tiff"
    # Of copies: Pillow keeps the PNG encoder's settings with a picture and hands them to the next encoder.
    first, *others = (picture.copy() for picture in pictures)
    first.save(whole, save_all=True, append_images=others)

    def by_hand() -> None:
        for file in files:
            command = ["tesseract", str(file), "-", "-l", LANGUAGES, "--psm", MODE]
            subprocess.run(command, check=True, capture_output=True)

    def by_files() -> None:
        for file in files:
            read(file, [1])

    return [
        measure("tesseract by hand", count, by_hand),
        measure("recognise, one file", count, lambda: read(whole, range(1, count + 1))),
        measure("recognise, a file a page", count, by_files),
    ]


def measure(way: str, pages: int, work: Callable[[], object]) -> Speed:
    """Do some work once and take what it cost, this process and all it waited for."""
    cpu, wall = _cpu_seconds(), time.perf_counter()
    work()
    return Speed(way, pages, round(_cpu_seconds() - cpu, 2), round(time.perf_counter() - wall, 2))


def read(path: Path, pages: Sequence[int]) -> list[OcrPage]:
    """OCR some pages of a file as the service does."""
    found: list[OcrPage] = []
    recognise(path, pages, found.append, rules=ExtractRules(ocr_languages=LANGUAGES))
    return found


def show(accuracies: Sequence[Accuracy], speeds: Sequence[Speed], console: Console) -> None:
    """Two tables, and the worst page by name."""
    version = subprocess.run(["tesseract", "--version"], check=True, capture_output=True, text=True)
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    console.print(f"{system}, {version.stdout.splitlines()[0]}, languages {LANGUAGES}", highlight=False)
    table = Table(header_style="bold", title="characters read right, %")
    columns = list(dict.fromkeys(one.condition for one in accuracies))
    table.add_column("page")
    for condition in columns:
        table.add_column(condition, justify="right")
    rows: dict[str, dict[str, float]] = {}
    for one in accuracies:
        rows.setdefault(f"{one.language}, {one.dpi} dpi", {})[one.condition] = one.accuracy
    for name, row in rows.items():
        table.add_row(name, *(f"{100 * row[condition]:.2f}" for condition in columns))
    console.print(table)
    worst = min(accuracies, key=lambda one: one.accuracy)
    console.print(f"worst: {worst.language}, {worst.dpi} dpi, {worst.condition}: {100 * worst.accuracy:.2f} %")
    table = Table(header_style="bold", title=f"speed, {speeds[0].pages} pages at {SPEED_DPI} dpi")
    table.add_column("way")
    for column in ("CPU s", "wall s", "pages a CPU minute", "× by hand"):
        table.add_column(column, justify="right")
    for line in speeds:
        ratio = line.pages_a_minute / speeds[0].pages_a_minute
        table.add_row(
            line.way,
            f"{line.cpu_seconds:.2f}",
            f"{line.wall_seconds:.2f}",
            f"{line.pages_a_minute:.1f}",
            f"{ratio:.2f}",
        )
    console.print(table)


def _cpu_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)
