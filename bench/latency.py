"""From a file dropped in a folder to a search that finds it, on the real thing.

A `gristmill up` of its own, in a throw-away home with the embedded services and the embedded default model, mirrors a
folder. One-page text files are moved into it one at a time, each of them new text. For each, three spans are taken:

- detected: from the rename that puts it there until the watcher has recorded it, stability delay taken off;
- indexed: from that record until the ledger says searchable (`searchable_at - event_at`);
- found: from the rename until `hybrid_search`, given its code and no vector, returns it, stability delay taken off.

Beside each file one ready-made row is inserted into `documents`, text, metadata and vector given. That is what Postgres
alone needs on this machine at that moment, so a figure can be read as a multiple of it where the machine is noisy.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pgvector import Vector as PgVector
from psycopg import Connection
from psycopg.types.json import Jsonb
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.service import machine, running, until
from worker.database import open_database
from worker.places import file_uri

WORDS_A_PAGE = 350
VOCABULARY = """
the pump valve motor seal gauge pressure inlet housing bearing filter tank hose relay panel alarm sensor cable switch
of a to in before after when if and or not winter summer shift report office invoice customer contract delivery repair
service engineer checks opens closes replaces measures cleans orders signs returns must may should water oil air steam
heat cold noise leak crack rust dust slow fast high low new worn open shut
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """The spans of one file, in seconds; see the module for what they mean."""

    detected: float
    indexed: float
    found: float
    bare_insert: float


@dataclass(frozen=True, slots=True)
class Result:
    """One run: where and how it was taken, and its samples."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    samples: tuple[Sample, ...]

    def figures(self) -> dict[str, dict[str, float]]:
        """p50, p95 and worst of each span in milliseconds, and p50 as a multiple of the bare insert's."""
        spans = {name: [getattr(sample, name) * 1000 for sample in self.samples] for name in Sample.__slots__}
        reference = float(np.percentile(spans["bare_insert"], 50))
        return {
            name: {
                "p50_ms": round(float(np.percentile(values, 50)), 1),
                "p95_ms": round(float(np.percentile(values, 95)), 1),
                "max_ms": round(max(values), 1),
                "times_bare_insert": round(float(np.percentile(values, 50)) / reference, 1),
            }
            for name, values in spans.items()
        }


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print; 0 unless something did not become searchable in time, which raises."""
    parser = argparse.ArgumentParser(prog="python -m bench latency", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=60, help="files to measure (60)")
    parser.add_argument("--warm", type=int, default=10, help="files before them that are not counted (10)")
    parser.add_argument("--stability", type=float, default=0.5, help="GRISTMILL_STABILITY_SECONDS of the run (0.5)")
    parser.add_argument("--json", action="store_true", help="answer as JSON")
    options = parser.parse_args(arguments)
    result = measure(options.count, warm=options.warm, stability=options.stability)
    if options.json:
        answer = {"machine": result.machine, "settings": result.settings, "figures": result.figures()}
        print(json.dumps(answer, indent=2))
    else:
        show(result, Console())
    return 0


def measure(count: int, *, warm: int, stability: float) -> Result:
    """Run the service and drop `warm` files that are not counted, then `count` that are.

    Args:
        stability: seconds a file must be quiet before the watcher takes it; taken off again.

    Raises:
        RuntimeError: the service ended by itself.
        TimeoutError: it did not start, or a file was not found within two minutes.
    """
    load = os.getloadavg()
    with (
        running(stability_seconds=stability) as (settings, drop),
        open_database(settings, application="bench") as connection,
    ):
        pages = [page(number) for number in range(warm + count)]
        console = Console(stderr=True)
        samples = [
            sample(connection, drop, number, text, stability)
            for number, text in enumerate(track(pages, "one file at a time", console=console))
        ][warm:]
        return Result(
            machine(connection, load),
            {"count": count, "warm": warm, "stability_seconds": stability, "model": _model(connection)[0]},
            tuple(samples),
        )


def sample(connection: Connection[Any], drop: Path, number: int, text: str, stability: float) -> Sample:
    """Insert one ready row, then drop one file and wait until it is found."""
    bare_insert = insert_ready_row(connection, number, text)
    staged = drop.parent / f"page-{number:04}.txt"
    staged.write_text(text)
    path = drop / staged.name
    dropped, began = time.time(), time.perf_counter()
    staged.rename(path)
    uri = file_uri(path)

    def found() -> bool:
        row = connection.execute("select metadata->>'uri' from hybrid_search(%s, null, 1)", (code(number),)).fetchone()
        return row == (uri,)

    time.sleep(stability)
    until(found, f"{path.name} to be found")
    seconds = time.perf_counter() - began - stability
    row = connection.execute(
        "select extract(epoch from event_at)::float8, extract(epoch from searchable_at)::float8"
        " from sources where uri = %s",
        (uri,),
    ).fetchone()
    assert row is not None
    return Sample(row[0] - dropped - stability, row[1] - row[0], seconds, bare_insert)


def insert_ready_row(connection: Connection[Any], number: int, text: str) -> float:
    """Seconds to insert and commit one row whose vector is given; the row is taken out again."""
    values = np.random.default_rng(number).standard_normal(_model(connection)[1]).astype(np.float32)
    row = (text.replace(code(number), ""), Jsonb({"uri": "bench:ready"}), PgVector(values / np.linalg.norm(values)))
    began = time.perf_counter()
    connection.execute("insert into documents (content, metadata, embedding) values (%s, %s, %b)", row)
    seconds = time.perf_counter() - began
    connection.execute("delete from documents where metadata @> %s", (Jsonb({"uri": "bench:ready"}),))
    return seconds


def code(number: int) -> str:
    """The code that only this page holds."""
    return f"LT-{number:04}"


def page(number: int) -> str:
    """A page of text like no other: four paragraphs, and its code."""
    words = random.Random(number).choices(VOCABULARY.split(), k=WORDS_A_PAGE)
    size = -(-WORDS_A_PAGE // 4)
    paragraphs = [" ".join(words[at : at + size]).capitalize() + "." for at in range(0, WORDS_A_PAGE, size)]
    return f"Page {number}. " + "\n\n".join(paragraphs) + f"\n\nThe code of this page is {code(number)}.\n"


def show(result: Result, console: Console) -> None:
    """The machine in two lines, the figures as a table."""
    for facts in (result.machine, result.settings):
        console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
    table = Table(header_style="bold")
    table.add_column("span")
    for column in ("p50 ms", "p95 ms", "max ms", "× bare insert"):
        table.add_column(column, justify="right")
    for name, row in result.figures().items():
        table.add_row(name.replace("_", " "), *(f"{value:,.1f}" for value in row.values()))
    console.print(table)


def _model(connection: Connection[Any]) -> tuple[str, int]:
    row = connection.execute("select model, dimensions from index_models").fetchone()
    assert row is not None, "the service has prepared the index"
    return row[0], row[1]
