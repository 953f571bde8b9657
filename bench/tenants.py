"""What it costs a tenant that others share the index: recall and time of its own searches, beside an exact scan.

A throw-away embedded Postgres is filled with random vectors and short texts of six tenants, twice: once with vectors
that tell nothing of the tenant, once with topics of its own for each tenant, which is what confined search by a shared
graph finds hard: a question from a topic of others leads the graph to rows that do not count. Each way of asking is
put the same questions; what it should have found comes from measuring all rows of the tenant.

A way is asked each question twice and the second time counts. Parallel plans are off, for all.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector import Vector as PgVector
from psycopg import Connection, sql
from rich.console import Console
from rich.table import Table

from bench.corpus import Question, Vectors
from bench.search import serving
from bench.service import machine
from pipelines.database import connect
from sql.migrate import migrate

DEPTH = 20
SHARES: Mapping[str, float] = {"half": 0.5, "tenth": 0.1, "hundredth": 0.01, "thousandth": 0.001, "twenty": 0}
"""Tenants by their share of all chunks; `twenty` has 20 of them, and `rest` all that is left."""
ROWS_A_TOPIC = 200
LAYOUTS = {"independent": ("any",), "correlated": ("own", "far")}
"""How vectors go with tenants, and whose topics the questions are of: anybody's, the tenant's own, or another's."""

SEARCH = "select id from search_documents(%(text)s, %(vector)s, 20, mode => '{mode}')"
NODE = 'select *, "embedding" <=> %(vector)s as "_distance" from "documents" order by "_distance" asc limit 20'
WAYS = {
    "owner, tenant =>, vector": SEARCH.format(mode="vector")[:-1] + ", tenant => %(tenant)s)",
    "reader, vector": SEARCH.format(mode="vector"),
    "reader, hybrid": SEARCH.format(mode="hybrid"),
    "reader, match_documents": "select id from match_documents(%(vector)s, 20)",
    "reader, n8n's node": f"select id from ({NODE}) as node",
    "reader, node, no index scans": f"select id from ({NODE}) as node",
    "all tenants": SEARCH.format(mode="vector"),
}
AS_THEY_COME = ("reader, match_documents", "reader, n8n's node", "all tenants")
"""What we cannot mend, or no tenant asks."""
EXACT = "select id from documents where embedding is not null{} order by (embedding <=> %(vector)s) + 0, id limit 20"


@dataclass(frozen=True, slots=True)
class Corpus:
    """Chunks: their texts, vectors of length 1, and tenants; and questions by tenant and by whose topic they are of."""

    texts: Sequence[str]
    vectors: Vectors
    tenants: Sequence[str]
    questions: Mapping[tuple[str, str], Sequence[Question]]


@dataclass(frozen=True, slots=True)
class Figure:
    """One way of asking, for one tenant and one kind of question.

    Attributes:
        recall: share of the 20 that an exact search finds, in the mean and in the worst question.
        p50_ms: in the median.
        to_exact: that as a multiple of measuring all rows of the tenant.
        to_unconfined: as a multiple of the vector search that looks at all tenants.
    """

    layout: str
    topic: str
    tenant: str
    rows: int
    way: str
    recall: float
    worst: float
    p50_ms: float
    to_exact: float
    to_unconfined: float


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print; 1 where a way of ours finds less than 0.95 of what an exact search does."""
    parser = argparse.ArgumentParser(prog="python -m bench tenants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chunks", type=int, default=100_000, help="of all tenants (100000)")
    parser.add_argument("--dimensions", type=int, default=96, help="of the vectors (96)")
    parser.add_argument("--questions", type=int, default=20, help="for each tenant and topic (20)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="for readers' connections")
    parser.add_argument("--json", action="store_true", help="answer as JSON")
    options = parser.parse_args(arguments)
    settings = dict(one.split("=", 1) for one in options.set)
    load = os.getloadavg()
    figures: list[Figure] = []
    with serving(None) as database_url:
        for layout in LAYOUTS:
            corpus = build(options.chunks, options.dimensions, options.questions, layout)
            dsn = filled(database_url, corpus, layout)
            figures += measure(dsn, corpus, layout, settings)
        with psycopg.connect(database_url) as connection:
            facts = machine(connection, load)
    if options.json:
        print(json.dumps({"machine": facts, "figures": [asdict(figure) for figure in figures]}, indent=2))
    else:
        show(facts, figures, Console(width=None if sys.stdout.isatty() else 150))
    return 0 if all(f.recall >= 0.95 for f in figures if f.way not in AS_THEY_COME) else 1


def build(chunks: int, dimensions: int, questions: int, layout: str, *, seed: int = 7) -> Corpus:
    """Make up a collection, the same for the same seed.

    Args:
        chunks: at least 1,000.
        dimensions: of the vectors, which lie around the centres of topics, centres and spread with one decaying
            spectrum as those of language models have (see `bench.corpus`).
        questions: for each tenant and each kind of topic.
        layout: one of `LAYOUTS`.
    """
    random = np.random.default_rng(seed)
    sizes = {tenant: int(chunks * share) or 20 for tenant, share in SHARES.items()}
    sizes["rest"] = chunks - sum(sizes.values())
    widths = {tenant: max(1, size // ROWS_A_TOPIC) for tenant, size in sizes.items()}
    first = dict(zip(widths, np.cumsum([0, *widths.values()]).tolist(), strict=False))
    every = sum(widths.values())

    def topics_of(tenant: str, count: int) -> NDArray[np.int64]:
        if layout == "independent":
            return random.integers(0, every, count)
        return random.integers(first[tenant], first[tenant] + widths[tenant], count)

    tenants = np.repeat(list(sizes), list(sizes.values()))
    topics = np.concatenate([topics_of(tenant, size) for tenant, size in sizes.items()])
    order = random.permutation(chunks)  # as rows of tenants that write at the same time
    tenants, topics = tenants[order], topics[order]

    spectrum = (1 + np.arange(dimensions, dtype=np.float32)) ** -0.5
    centres = random.standard_normal((every, dimensions), dtype=np.float32) * spectrum

    def near(topic: NDArray[np.int64]) -> Vectors:
        vectors = centres[topic] + 0.6 * random.standard_normal((len(topic), dimensions), dtype=np.float32) * spectrum
        result: Vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
        return result

    def texts(topic: NDArray[np.int64]) -> list[str]:
        words = (random.pareto(1.0, (len(topic), 10)) * 20).astype(np.int64) % 5000
        return [" ".join([_word(at + 9000), *map(_word, row)]) for at, row in zip(topic, words, strict=True)]

    asked: dict[tuple[str, str], Sequence[Question]] = {}
    for tenant in SHARES:
        other = "rest" if tenant == "half" else "half"
        for kind in LAYOUTS[layout]:
            about = topics_of(other if kind == "far" else tenant, questions)
            asked[tenant, kind] = [Question(*pair) for pair in zip(texts(about), near(about), strict=True)]
    return Corpus(texts(topics), near(topics), tenants.tolist(), asked)


def _word(number: int) -> str:
    """Letters only, or it would be an identifier."""
    return "".join("bdfgklmnrt"[int(digit)] + "aeiouaeiou"[int(digit)] for digit in str(number)) + "x"


def filled(database_url: str, corpus: Corpus, name: str) -> str:
    """A database with the collection, and a role for each tenant: its DSN."""
    dsn = database_url.replace("/gristmill?", f"/{name}?")
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        admin.execute("alter system set fsync = off")
        admin.execute("select pg_reload_conf()")
    migrate(dsn, dimensions=corpus.vectors.shape[1])

    def copy(rows: range) -> None:
        with (
            connect(dsn) as connection,
            connection.cursor() as cursor,
            cursor.copy("copy documents (id, content, tenant, embedding) from stdin with (format binary)") as stream,
        ):
            stream.set_types(["int8", "text", "text", "vector"])
            for row in rows:
                stream.write_row((row, corpus.texts[row], corpus.tenants[row], PgVector(corpus.vectors[row])))

    with connect(dsn) as connection:
        connection.execute("set maintenance_work_mem = '1GB'")
        connection.execute("drop index documents_embedding")
        backends = os.cpu_count() or 1
        with ThreadPoolExecutor(backends) as threads:
            list(threads.map(copy, [range(n, len(corpus.texts), backends) for n in range(backends)]))
        connection.execute("create index documents_embedding on documents using hnsw (embedding vector_cosine_ops)")
        connection.execute("select refresh_statistics()")
        connection.execute("vacuum analyze documents")
        for tenant in SHARES:
            found = connection.execute("select from pg_roles where rolname = %s", (f"bench_{tenant}",)).fetchone()
            if found is None:
                connection.execute(sql.SQL("create role {}").format(sql.Identifier(f"bench_{tenant}")))
            connection.execute("select grant_reader(%s, %s)", (f"bench_{tenant}", tenant))
    return dsn


def measure(dsn: str, corpus: Corpus, layout: str, settings: Mapping[str, str]) -> list[Figure]:
    """All ways of asking, for all tenants and kinds of questions.

    Args:
        settings: of Postgres, for the connections that ask as readers.
    """
    figures = []
    with connect(dsn) as owner:
        owner.execute("set max_parallel_workers_per_gather = 0")
        owner.execute("set plan_cache_mode = force_custom_plan")
        for (tenant, topic), questions in corpus.questions.items():
            rows = corpus.tenants.count(tenant)
            with connect(dsn) as reader:
                reader.execute("set max_parallel_workers_per_gather = 0")
                reader.execute("set plan_cache_mode = force_custom_plan")
                for name, value in settings.items():
                    reader.execute("select set_config(%s, %s, false)", (name, value))
                reader.execute(sql.SQL("set role {}").format(sql.Identifier(f"bench_{tenant}")))
                exact, exact_ms = ask(owner, EXACT.format(" and tenant = %(tenant)s"), tenant, questions)
                _, unconfined_ms = ask(owner, WAYS["all tenants"], tenant, questions)
                for way, query in WAYS.items():
                    wanted = exact
                    if way == "all tenants":
                        wanted, _ = ask(owner, EXACT.format(""), tenant, questions)
                    if "hybrid" in way or "no index" in way:
                        # A tenant's rows are then found by its index, and sorted.
                        reader.execute("set enable_indexscan = off")
                    if "hybrid" in way:
                        wanted, _ = ask(reader, query, tenant, questions)
                        reader.execute("reset enable_indexscan")
                    found, ms = ask(reader if way.startswith("reader") else owner, query, tenant, questions)
                    reader.execute("reset enable_indexscan")
                    shares = [len({*f} & {*w}) / len(w) for f, w in zip(found, wanted, strict=True)]
                    to_exact, to_unconfined = round(ms / exact_ms, 2), round(ms / unconfined_ms, 2)
                    recall, worst = round(float(np.mean(shares)), 4), round(min(shares), 2)
                    figures.append(
                        Figure(layout, topic, tenant, rows, way, recall, worst, round(ms, 2), to_exact, to_unconfined)
                    )
    return figures


def ask(
    connection: Connection[Any], query: str, tenant: str, questions: Sequence[Question]
) -> tuple[list[list[int]], float]:
    """What each question finds, and the median of milliseconds."""
    found, spans = [], []
    for question in questions:
        values = {"text": question.text, "vector": PgVector(question.vector), "tenant": tenant}
        connection.execute(query.encode(), values).fetchall()
        began = time.perf_counter()
        rows = connection.execute(query.encode(), values).fetchall()
        spans.append(time.perf_counter() - began)
        found.append([row[0] for row in rows])
    return found, 1000 * float(np.median(spans))


def show(facts: Mapping[str, Any], figures: Sequence[Figure], console: Console) -> None:
    """The machine in a line, then a table for each layout and kind of question."""
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
    for layout, topics in LAYOUTS.items():
        for topic in topics:
            chosen = [figure for figure in figures if (figure.layout, figure.topic) == (layout, topic)]
            title = f"vectors {layout}, questions of {topic} topics: recall (worst), ms, times exact, times unconfined"
            table = Table("tenant", "rows", *WAYS, title=title, header_style="bold")
            for tenant in SHARES:
                cells = [figure for figure in chosen if figure.tenant == tenant]
                table.add_row(
                    tenant,
                    f"{cells[0].rows:,}",
                    *(
                        f"{f.recall:.3f} ({f.worst:.2f})\n{f.p50_ms:.1f}  {f.to_exact}  {f.to_unconfined}"
                        for f in cells
                    ),
                )
            console.print(table)
