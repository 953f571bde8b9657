"""A long scan, from the event to searchable, on one OCR worker and on more, beside Tesseract run by hand.

The scan is a PDF of pictures: pages of real English and French prose in another order on each page, at 200 dpi. The
service is a real `gristmill up`; all that it does is in its figure: claims, child processes, drawing the pages,
joining, chunking, embedding and the commit. By hand means: the very pictures as files, one `tesseract` process a
picture, as many at a time as there are OCR workers, one thread each, the same languages and page segmentation.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console
from rich.table import Table

from bench.prose import ENGLISH, FRENCH, photograph, typeset
from bench.service import machine, running, until
from worker.database import open_database
from worker.places import file_uri

DPI = 200
BY_HAND_PAGES = 40
LONGEST_SECONDS = 3600.0


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print.

    Returns:
        0.
    """
    parser = argparse.ArgumentParser(prog="python -m bench scan", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pages", type=int, default=200)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(list(arguments))
    console = Console(stderr=True)
    load = os.getloadavg()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-") as name:
        scan, pictures = Path(name) / "scan.pdf", Path(name) / "pictures"
        pictures.mkdir()
        make_scan(scan, pictures, options.pages)
        for workers in options.workers:
            console.print(f"{options.pages} pages on {workers}")
            seconds, facts = index(scan, options.pages, workers, load)
            hand = by_hand(sorted(pictures.iterdir()), workers)
            rows.append(
                {
                    "workers": workers,
                    "seconds": round(seconds, 1),
                    "pages_a_minute": round(60 * options.pages / seconds, 1),
                    "by_hand_a_minute": round(60 * min(options.pages, BY_HAND_PAGES) / hand, 1),
                }
            )
    for row in rows:
        row["of_by_hand"] = round(row["pages_a_minute"] / row["by_hand_a_minute"], 2)
        row["times_first"] = round(rows[0]["seconds"] / row["seconds"], 2)
    if options.json:
        print(json.dumps({"machine": facts, "figures": rows}, indent=2))
        return 0
    show(facts, rows, Console())
    return 0


def make_scan(path: Path, pictures: Path, pages: int) -> None:
    """Write a PDF of pictures, and the first of its pictures as files."""
    made = _pictures(pages)
    shown = list(itertools.islice(made, BY_HAND_PAGES))
    for number, picture in enumerate(shown):
        picture.save(pictures / f"{number:03}.png", dpi=(DPI, DPI))
    first, *others = shown
    first.save(path, "PDF", save_all=True, append_images=itertools.chain(others, made), resolution=DPI)


def _pictures(pages: int) -> Iterator[Image.Image]:
    order = random.Random(7)
    sentences = [part.strip() + "." for text in (ENGLISH, FRENCH) for part in text.replace("\n", " ").split(". ")]
    for number in range(1, pages + 1):
        order.shuffle(sentences)
        document = typeset("\n".join([f"Page {number}.", *sentences]))
        try:
            yield photograph(document, DPI)
        finally:
            document.close()


def index(scan: Path, pages: int, workers: int, load: tuple[float, float, float]) -> tuple[float, dict[str, Any]]:
    """Seconds from the event until the scan is searchable, and what the machine is."""
    wanted = {"ocr_concurrency": workers, "ingest_concurrency": 1, "stability_seconds": 0.5}
    with running(**wanted) as (settings, drop), open_database(settings, application="bench") as connection:
        path = drop / scan.name
        staged = drop.parent / scan.name
        staged.write_bytes(scan.read_bytes())
        staged.rename(path)
        query = (
            "select state, extract(epoch from searchable_at - event_at)::float8, error_cause, report from sources"
            " where uri = %s"
        )

        def settled() -> bool:
            row = connection.execute(query, (file_uri(path),)).fetchone()
            time.sleep(0.5)
            return row is not None and row[0] in ("done", "failed", "dead")

        until(settled, "the scan to be searchable", seconds=LONGEST_SECONDS)
        row = connection.execute(query, (file_uri(path),)).fetchone()
        assert row is not None and row[0] == "done", row
        read = sum(page["decision"] == "ocr" and not page["problem"] for page in row[3]["pages"])
        assert read == pages, f"only {read} of {pages} pages were read"
        return row[1], machine(connection, load)


def by_hand(pictures: Sequence[Path], processes: int) -> float:
    """Seconds that Tesseract takes for the pictures, `processes` at a time."""

    def one(picture: Path) -> None:
        subprocess.run(
            ["tesseract", str(picture), "-", "-l", "eng+fra", "--psm", "1", "tsv"],
            check=True,
            capture_output=True,
            env=os.environ | {"OMP_THREAD_LIMIT": "1"},
        )

    began = time.perf_counter()
    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(one, pictures))
    return time.perf_counter() - began


def show(facts: dict[str, Any], rows: Sequence[dict[str, Any]], console: Console) -> None:
    """The machine in a line, the figures as a table."""
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
    table = Table("OCR workers", "seconds", "pages a minute", "by hand a minute", "of by hand", "× the first")
    for row in rows:
        table.add_row(*map(str, row.values()))
    console.print(table)
