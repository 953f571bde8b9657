"""Fused search beside what it replaces, on one machine in one run.

A throw-away embedded Postgres is filled with a made-up collection (see `bench.corpus`), once for every size asked for,
in our table and in the tutorials'. Five contenders answer the same questions in turns, so that whatever else the
machine does hits all alike: ours, its vector leg alone, its lexical leg alone, the tutorials' function as printed, and
the same repaired. For each kind of question and each filter: p50 and p95 of the wall time that a client on one
connection sees, and the mean CPU time of the backend, which depends less on the machine's other work.

Parallel plans are off, for all: they would hide work from the measurement, and a server that answers many has no idle
cores.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import psycopg
from pgvector import Vector as PgVector
from psycopg import Connection, sql
from psycopg.types.json import Jsonb
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.corpus import DIMENSIONS, FILTERS, KINDS, Corpus, Question, build_corpus
from bench.service import machine
from pipelines.database import connect
from sql.migrate import migrate, migrations
from worker.embedded import start_services, stop_services
from worker.settings import load_settings

DEPTH = 20
OURS = "select id from search_documents(%(text)s, %(vector)s, 20, mode => '{mode}', filter => %(filter)s)"
CONTENDERS = {
    "ours": OURS.format(mode="hybrid"),
    "vector leg": OURS.format(mode="vector"),
    "lexical leg": OURS.format(mode="keyword"),
    "tutorial": "select id from tutorial_search_filtered(%(text)s, %(vector)s, 20, %(filter)s)",
    "repaired": "select id from tutorial_search_repaired(%(text)s, %(vector)s, 20, %(filter)s)",
}
PRINTED = "select id from tutorial_search(%(text)s, %(vector)s, 20)"
RANKED = (
    "select count(*) from tutorial_documents where (%(filter)s = '{}' or metadata @> %(filter)s)"
    " and fts @@ replace(plainto_tsquery('english', %(text)s)::text, '&', '|')::tsquery"
)
ENOUGH_ROWS = 1000
"""From so many rows on, the repaired tutorial has rows to rank; below, both do little but look for vectors."""

Cell = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Figure:
    """One contender in one cell: milliseconds, and how many questions they are of."""

    kind: str
    filter: str
    contender: str
    p50_ms: float
    p95_ms: float
    cpu_ms: float
    samples: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours in one cell as a multiple of the two legs together, and of the repaired tutorial: by p50 and by CPU time.

    Attributes:
        rows: how many rows the repaired tutorial has to rank, in the median.
    """

    kind: str
    filter: str
    to_legs: float
    to_legs_cpu: float | None
    to_repaired: float
    to_repaired_cpu: float | None
    rows: int


@dataclass(frozen=True, slots=True)
class Recall:
    """The vector leg against an exact scan, with one filter.

    Attributes:
        recall: share of the true nearest 20 (or of all rows, where the filter leaves fewer) that it finds.
        returned, possible: rows that it returns when asked for 100, and that it should; the least of all questions.
    """

    filter: str
    recall: float
    returned: int
    possible: int


@dataclass(frozen=True, slots=True)
class Run:
    """All that was measured at one size."""

    chunks: int
    load_seconds: dict[str, float]
    figures: tuple[Figure, ...]
    ratios: tuple[Ratio, ...]
    recall: tuple[Recall, ...]
    far_found: int
    far_rows: int


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print; 1 where the rows that a filter leaves far away were not all found."""
    parser = argparse.ArgumentParser(prog="python -m bench search", description=(__doc__ or "").splitlines()[0])
    sizes = [10_000, 100_000]
    parser.add_argument("--chunks", type=int, nargs="+", default=sizes, help="sizes to measure (10000 100000)")
    parser.add_argument("--rounds", type=int, default=30, help="questions of each kind (30)")
    parser.add_argument(
        "--cell-seconds", type=float, default=15, help="a contender that took so long in a cell is done with it (15)"
    )
    parser.add_argument("--keep", type=Path, metavar="HOME", help="keep the databases there, and use them again")
    parser.add_argument("--json", action="store_true", help="answer as JSON")
    options = parser.parse_args(arguments)
    load = os.getloadavg()
    with serving(options.keep) as database_url:
        runs = [
            measure(database_url, chunks, rounds=options.rounds, cell_seconds=options.cell_seconds)
            for chunks in options.chunks
        ]
        with psycopg.connect(database_of(database_url, options.chunks[0])[1]) as connection:
            facts = machine(connection, load)
    if options.json:
        print(json.dumps({"machine": facts, "runs": [asdict(run) for run in runs]}, indent=2))
    else:
        show(facts, runs, Console(width=None if sys.stdout.isatty() else 150))
    return 0 if all(run.far_found == run.far_rows for run in runs) else 1


def measure(database_url: str, chunks: int, *, rounds: int, cell_seconds: float) -> Run:
    """Everything at one size.

    Args:
        database_url: a server on which databases may be made.
        chunks: how many; at least 300.
        rounds: questions of each kind.
        cell_seconds: a contender that has taken so long in a cell gets no more questions there.
    """
    corpus = build_corpus(chunks, rounds)
    dsn, seconds = filled(database_url, corpus)
    with connect(dsn, application="bench") as connection:
        connection.execute("set max_parallel_workers_per_gather = 0")
        connection.execute("set jit = off")
        connection.prepare_threshold = 0
        figures = tuple(race(connection, corpus, rounds, cell_seconds))
        ratios = tuple(ratio(connection, corpus, cell, figures) for cell in product(KINDS, FILTERS))
        recall = tuple(recall_of(connection, corpus, name, wanted) for name, wanted in FILTERS.items())
        far = ask(connection, CONTENDERS["vector leg"], corpus.far, {"far": True})
        found = len(set(far) & set(corpus.far_rows))
    return Run(chunks, seconds, figures, ratios, recall, found, len(corpus.far_rows))


def race(connection: Connection[Any], corpus: Corpus, rounds: int, cell_seconds: float) -> Iterator[Figure]:
    """Ask all contenders in turns, each cell a question a round.

    Each is asked twice and the second time counts. Otherwise a contender would pay for the pages that the one before
    it has pushed out of the buffers, or live on those that it has brought in.
    """
    backend = psutil.Process(connection.info.backend_pid)
    backend_cpu = cpu_clock(backend.pid)
    random = np.random.default_rng(rounds)
    cells = list(product(KINDS, FILTERS))
    wall: dict[tuple[Cell, str], list[float]] = {(cell, name): [] for cell in cells for name in CONTENDERS}
    cpu: dict[tuple[Cell, str], float] = dict.fromkeys(wall, 0.0)
    for number in track(range(rounds), f"{len(corpus.texts):,} chunks", console=Console(stderr=True)):
        for cell in cells:
            question = corpus.questions[cell[0]][number]
            for name in random.permutation(list(CONTENDERS)):
                key = cell, str(name)
                if 2 * sum(wall[key]) > cell_seconds:
                    continue
                ask(connection, statement(key[1], cell[1]), question, FILTERS[cell[1]])
                rest(backend)
                began, worked = time.perf_counter(), backend_cpu()
                ask(connection, statement(key[1], cell[1]), question, FILTERS[cell[1]])
                wall[key].append(time.perf_counter() - began)
                rest(backend)
                cpu[key] += backend_cpu() - worked
    for (cell, name), spans in wall.items():
        p50, p95 = (round(1000 * float(np.percentile(spans, share)), 2) for share in (50, 95))
        yield Figure(*cell, name, p50, p95, round(1000 * cpu[cell, name] / len(spans), 2), len(spans))


def statement(contender: str, filter_name: str) -> str:
    """The call of a contender; without a filter the tutorials' function is the printed one."""
    return PRINTED if contender == "tutorial" and filter_name == "none" else CONTENDERS[contender]


def ask(
    connection: Connection[Any], query: str, question: Question, wanted: Mapping[str, Any], **more: Any
) -> list[int]:
    """Positions of the chunks that a contender answers with, best first."""
    values = {"text": question.text, "vector": PgVector(question.vector), "filter": Jsonb(dict(wanted)), **more}
    return [row[0] for row in connection.execute(query.encode(), values).fetchall()]


def ratio(connection: Connection[Any], corpus: Corpus, cell: Cell, figures: Sequence[Figure]) -> Ratio:
    """Compare the contenders of one cell."""
    by_name = {figure.contender: figure for figure in figures if (figure.kind, figure.filter) == cell}
    ours, vector, lexical, repaired = (by_name[n] for n in ("ours", "vector leg", "lexical leg", "repaired"))
    rows = [ask(connection, RANKED, question, FILTERS[cell[1]])[0] for question in corpus.questions[cell[0]][:5]]
    return Ratio(
        *cell,
        round(ours.p50_ms / (vector.p50_ms + lexical.p50_ms), 2),
        multiple(ours.cpu_ms, vector.cpu_ms + lexical.cpu_ms),
        round(ours.p50_ms / repaired.p50_ms, 3),
        multiple(ours.cpu_ms, repaired.cpu_ms),
        int(np.median(rows)),
    )


def multiple(cpu_ms: float, of_ms: float) -> float | None:
    """One CPU time as a multiple of another; None of one too short for the kernel's clock, which may tick in 10 ms."""
    return round(cpu_ms / of_ms, 3) if of_ms else None


def recall_of(connection: Connection[Any], corpus: Corpus, name: str, wanted: Mapping[str, Any]) -> Recall:
    """Ask for the nearest 20 and for 100 with every question, and compare with all distances."""
    rows = corpus.rows_with(wanted)
    hundred = CONTENDERS["vector leg"].replace("20", "%(count)s")
    shares, returned = [], []
    for question in (question for kind in KINDS for question in corpus.questions[kind]):
        nearest = rows[np.argsort(-(corpus.vectors[rows] @ question.vector), kind="stable")[:DEPTH]]
        found = ask(connection, hundred, question, wanted, count=DEPTH)
        shares.append(len(set(found) & set(nearest.tolist())) / len(nearest))
        returned.append(len(ask(connection, hundred, question, wanted, count=100)))
    return Recall(name, round(float(np.mean(shares)), 4), min(returned), min(100, len(rows)))


def rest(process: psutil.Process, seconds: float = 1) -> None:
    """Wait until a process sleeps: only then does its clock hold all of the work for an answer that is already here."""
    deadline = time.monotonic() + seconds
    while process.status() != psutil.STATUS_SLEEPING and time.monotonic() < deadline:
        pass


def cpu_clock(pid: int) -> Callable[[], float]:
    """Seconds of CPU that a process has had: exactly on Linux, elsewhere as exactly as its kernel counts."""
    if psutil.LINUX:
        clock = ~pid << 3 | 2  # clock_getcpuclockid(3): every process has a clock of that number
        return lambda: time.clock_gettime(clock)
    process = psutil.Process(pid)
    return lambda: sum(process.cpu_times()[:2])


@contextmanager
def serving(keep: Path | None) -> Iterator[str]:
    """An embedded Postgres: its address."""
    with tempfile.TemporaryDirectory(prefix="gm-bench-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)  # as root, Postgres runs as another user and has to get through
        settings = load_settings(home=keep or Path(name) / "home", database_url=None, broker_url=None)
        try:
            yield start_services(settings).database_url
        finally:
            stop_services(settings)


def filled(database_url: str, corpus: Corpus) -> tuple[str, dict[str, float]]:
    """A database with the collection, loaded unless it is there: its DSN, and the seconds that each step took."""
    name, dsn = database_of(database_url, len(corpus.texts))
    ours = (migration.digest for migration in migrations())
    mark = " ".join(["bench search 1", *ours, Path(__file__).with_name("rivals.sql").read_text("utf-8")])
    with psycopg.connect(database_url, autocommit=True) as admin:
        comment = "select shobj_description(oid, 'pg_database') from pg_database where datname = %s"
        if admin.execute(comment, (name,)).fetchone() == (mark,):
            return dsn, {}
        admin.execute(sql.SQL("drop database if exists {}").format(sql.Identifier(name)))
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        migrate(dsn, dimensions=DIMENSIONS)
        seconds = load(dsn, corpus)
        admin.execute(sql.SQL("comment on database {} is {}").format(sql.Identifier(name), sql.Literal(mark)))
    return dsn, seconds


def database_of(database_url: str, chunks: int) -> tuple[str, str]:
    """Name and DSN of the database for a collection of that size."""
    name = f"chunks_{chunks}"
    return name, database_url.replace("/gristmill?", f"/{name}?")


def load(dsn: str, corpus: Corpus) -> dict[str, float]:
    """Fill both tables, build the indexes; the seconds of each step."""
    seconds: dict[str, float] = {}
    began = time.perf_counter()

    def lap(step: str) -> None:
        nonlocal began
        seconds[step] = round(time.perf_counter() - began, 1)
        began = time.perf_counter()

    def copy(rows: range) -> None:
        with (
            connect(dsn, application="bench load") as connection,
            connection.cursor() as cursor,
            cursor.copy("copy documents (id, content, metadata, embedding) from stdin with (format binary)") as stream,
        ):
            stream.set_types(["int8", "text", "jsonb", "vector"])
            for row in rows:
                stream.write_row((row, corpus.texts[row], Jsonb(corpus.metadata[row]), PgVector(corpus.vectors[row])))

    with connect(dsn, application="bench load") as connection:
        connection.execute("set maintenance_work_mem = '512MB'")
        connection.execute("set synchronous_commit = off")
        connection.execute("drop index documents_embedding")
        backends = os.cpu_count() or 1
        with ThreadPoolExecutor(backends) as threads:
            list(threads.map(copy, [range(n, len(corpus.texts), backends) for n in range(backends)]))
        lap("rows")
        connection.execute("create index documents_embedding on documents using hnsw (embedding vector_cosine_ops)")
        lap("hnsw")
        connection.execute((files("sql") / "baseline" / "tutorial.sql").read_bytes())
        connection.execute(Path(__file__).with_name("rivals.sql").read_bytes())
        connection.execute(
            "insert into tutorial_documents (id, content, metadata, embedding)"
            " select id, content, metadata, embedding from documents"
        )
        connection.execute("create index on tutorial_documents using hnsw (embedding vector_cosine_ops)")
        lap("tutorial")
        connection.execute("select refresh_statistics()")
        lap("statistics")
        for table in ("documents", "tutorial_documents"):
            connection.execute(sql.SQL("vacuum analyze {}").format(sql.Identifier(table)))
        lap("vacuum")
    return seconds


def show(facts: Mapping[str, Any], runs: Sequence[Run], console: Console) -> None:
    """The machine in a line; for every size the times, the ratios and the recall; growth where there are two sizes."""
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
    for run in runs:
        console.print(table_of_times(run))
        console.print(table_of_ratios(run))
        for recall in run.recall:
            console.print(
                f"vector leg, filter {recall.filter}: recall@{DEPTH} {recall.recall:.3f} (goal 0.97);"
                f" rows when 100 are asked for: {recall.returned} of {recall.possible}",
                highlight=False,
            )
        console.print(f"a filter that leaves {run.far_rows} far rows returns {run.far_found} of them", highlight=False)
    if len(runs) > 1:
        console.print(table_of_growth(runs))


def table_of_times(run: Run) -> Table:
    """p50 / p95 (CPU) of each contender, one row a cell."""
    steps = ", ".join(f"{step} {value:.0f} s" for step, value in run.load_seconds.items())
    title = f"{run.chunks:,} chunks: p50 / p95 (CPU), ms" + (f"; loaded in {steps}" if steps else "")
    table = Table("question", "filter", *CONTENDERS, title=title, header_style="bold")
    for kind, name in product(KINDS, FILTERS):
        cells = [figure for figure in run.figures if (figure.kind, figure.filter) == (kind, name)]
        table.add_row(kind, name, *(f"{c.p50_ms:,.1f} / {c.p95_ms:,.1f} ({c.cpu_ms:,.1f})" for c in cells))
    return table


def table_of_ratios(run: Run) -> Table:
    """What the goals are set on: by p50 (by CPU)."""
    title = f"{run.chunks:,} chunks: ours as a multiple, by p50 (by CPU)"
    table = Table(
        "question", "filter", "of both legs (goal 1.3)", "of repaired (goal 0.25)", "rows ranked", title=title
    )
    for r in run.ratios:
        judged = "" if r.rows >= ENOUGH_ROWS else " -"
        table.add_row(
            r.kind,
            r.filter,
            f"{r.to_legs:.2f} ({shown(r.to_legs_cpu, 2)})",
            f"{r.to_repaired:.2f} ({shown(r.to_repaired_cpu, 2)}){judged}",
            f"{r.rows:,}",
        )
    return table


def table_of_growth(runs: Sequence[Run]) -> Table:
    """Each contender at the largest size as a multiple of itself at the smallest, by p50 (by CPU)."""
    small, large = (pick(runs, key=lambda run: run.chunks) for pick in (min, max))
    title = f"{large.chunks:,} chunks as a multiple of {small.chunks:,}, by p50 (by CPU)"
    table = Table("question", "filter", *CONTENDERS, title=title, header_style="bold")
    before = {(f.kind, f.filter, f.contender): f for f in small.figures}
    for kind, name in product(KINDS, FILTERS):
        pairs = [(f, before[kind, name, f.contender]) for f in large.figures if (f.kind, f.filter) == (kind, name)]
        times = [(new.p50_ms / old.p50_ms, multiple(new.cpu_ms, old.cpu_ms)) for new, old in pairs]
        table.add_row(kind, name, *(f"{wall:.1f} ({shown(cpu, 1)})" for wall, cpu in times))
    return table


def shown(factor: float | None, digits: int) -> str:
    """A multiple as text, and a dash where there is none."""
    return "-" if factor is None else f"{factor:.{digits}f}"
