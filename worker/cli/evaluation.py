"""The command that measures retrieval quality."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psycopg
import typer
from numpy.typing import NDArray
from psycopg import Connection, sql
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pipelines.beir import TestSet, load_test_set
from pipelines.context import code_headers
from pipelines.database import connect, patient
from pipelines.embed import Embedder, open_embedder
from pipelines.errors import ConfigurationError, PermanentError
from pipelines.evaluate import EvalMode, Measured, compare, index_test_set, measure
from sql.migrate import migrate
from worker.cli.output import Json, console, errors, print_json, print_table, settings
from worker.database import embedder_spec
from worker.embedded import Services, find_services, prepare_home, start_services, stop_services
from worker.settings import Settings

SCHEMA = "gristmill_eval"
SHOWN = ("hit@1", "recall@5", "recall@20", "fail@20", "mrr@10", "ndcg@10")
COMPARED = ("ndcg@10", "recall@20")


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("eval")(evaluate)


def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="corpus.jsonl, queries.jsonl and qrels.tsv (BEIR)")],
    embeddings: Annotated[
        Path | None, typer.Option(help="Ready-made vectors: an .npz with d (corpus) and q (queries), in file order")
    ] = None,
    baseline: Annotated[str | None, typer.Option(help="Run this beside ours: tutorial")] = None,
    header: Annotated[
        bool, typer.Option("--header", help="Give passages of code their context header (metadata: path, index)")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the schema gristmill_eval in the database")] = False,
    as_json: Json = False,
) -> None:
    """Measure search on a test set: each leg, the fusion, and on request the tutorials' SQL, through the same database.

    The set goes into a schema of its own. Where no service runs, an embedded Postgres is started for the occasion.
    """
    if baseline not in (None, "tutorial"):
        raise PermanentError("unknown_baseline", f"there is no baseline {baseline!r}", "use --baseline tutorial")
    found = settings()
    data = load_test_set(folder)
    modes: list[EvalMode] = ["hybrid", "vector", "keyword", "rrf"]
    if baseline:
        modes.append("tutorial")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as progress:
        model, passages, questions = _vectors(found, data, embeddings, progress)
        with _database(found) as services, _schema(services, found, passages.shape[1], keep) as connection:
            index_test_set(
                connection,
                data,
                passages,
                language=found.default_language,
                headers=_headers(data) if header else None,
                tutorial=baseline is not None,
                progress=_bar(progress, "indexing"),
            )
            results = [measure(connection, data, questions, mode, progress=_bar(progress, mode)) for mode in modes]
    _print(data, model, results, as_json=as_json)


def _print(data: TestSet, model: str, results: Sequence[Measured], *, as_json: bool) -> None:
    groups = {name: [question.id for question in members] for name, members in data.groups().items()}
    table = {r.mode: {name: r.summary(members) for name, members in groups.items()} for r in results}
    hybrid = results[0]
    differences = [
        (f"hybrid - {other.mode}", name, measured, compare(other, hybrid, measured, members))
        for other in results[1:]
        for name, members in groups.items()
        for measured in COMPARED
    ]
    if as_json:
        print_json(
            {
                "set": data.name,
                "model": model,
                "modes": table,
                "differences": [
                    {"of": of, "group": group, "measure": name, "mean": d.mean, "low": d.low, "high": d.high}
                    for of, group, name, d in differences
                ],
            }
        )
        return
    console.print(f"{data.name}: {len(data.passages)} passages, {len(groups['all'])} judged questions; model {model}")
    rows = [
        (mode, group, *(f"{row[name]:.1f}" for name in SHOWN))
        for mode, by in table.items()
        for group, row in by.items()
    ]
    print_table(["mode", "questions", *SHOWN], rows)
    print_table(
        ["difference", "questions", "measure", "points", "95 % (paired bootstrap)"],
        [(of, group, name, f"{d.mean:+.2f}", f"{d.low:+.2f} to {d.high:+.2f}") for of, group, name, d in differences],
    )


def _vectors(
    found: Settings, data: TestSet, file: Path | None, progress: Progress
) -> tuple[str, NDArray[np.float32], NDArray[np.float32]]:
    if file is not None:
        return file.stem, *_ready_made(file, data)
    embedder = open_embedder(embedder_spec(found))
    name = "".join(c if c.isalnum() else "-" for c in embedder.model)
    cached = found.home / "eval" / f"{data.name}.{name}.{data.digest}.npz"
    if not cached.is_file():
        prepare_home(found.home)
        cached.parent.mkdir(exist_ok=True)
        passages = _embedded(embedder, [passage.text for passage in data.passages], _bar(progress, "embedding"))
        bar = progress.add_task("embedding questions", total=len(data.questions))
        questions = []
        for question in data.questions:
            questions.append(embedder.embed_query(question.text))
            progress.advance(bar)
        part = cached.with_suffix(".part")
        with part.open("wb") as output:
            np.savez(output, d=passages, q=np.array(questions, dtype=np.float32))
        part.rename(cached)
    return embedder.model, *_ready_made(cached, data)


def _embedded(embedder: Embedder, texts: Sequence[str], report: Any) -> NDArray[np.float32]:
    vectors: list[NDArray[np.float32]] = []
    for start in range(0, len(texts), 64):
        vectors.extend(embedder.embed_documents(texts[start : start + 64]))
        report(len(vectors), len(texts))
    return np.array(vectors, dtype=np.float32)


def _ready_made(file: Path, data: TestSet) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            passages, questions = arrays["d"].astype(np.float32), arrays["q"].astype(np.float32)
    except (OSError, KeyError, ValueError) as error:
        raise PermanentError(
            "bad_embeddings", f"{file} cannot be used: {error}", "an .npz with arrays d and q"
        ) from error
    if (len(passages), len(questions)) != (len(data.passages), len(data.questions)):
        raise PermanentError(
            "bad_embeddings",
            f"{file} has {len(passages)} and {len(questions)} vectors, the set {len(data.passages)} passages and"
            f" {len(data.questions)} questions",
            "make them for this very set, in the order of its files",
        )
    return passages, questions


def _headers(data: TestSet) -> list[str | None]:
    files: dict[str, list[int]] = {}
    for at, passage in enumerate(data.passages):
        if "path" in passage.metadata:
            files.setdefault(f"{passage.metadata.get('repo', '')} {passage.metadata['path']}".strip(), []).append(at)
    headers: list[str | None] = [None] * len(data.passages)
    for place, members in files.items():
        members.sort(key=lambda at: data.passages[at].metadata.get("index", at))
        for at, header in zip(members, code_headers(place, [data.passages[m].text for m in members]), strict=True):
            headers[at] = header
    return headers


@contextmanager
def _database(found: Settings) -> Iterator[Services]:
    try:
        yield find_services(found)
    except ConfigurationError as error:
        if error.code != "not_running":
            raise
        prepare_home(found.home)
        try:
            yield start_services(found)
        finally:
            stop_services(found)


@contextmanager
def _schema(services: Services, found: Settings, dimensions: int, keep: bool) -> Iterator[Connection[Any]]:
    drop = sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(SCHEMA))
    with psycopg.connect(**patient(services.database_url), autocommit=True) as admin:
        admin.execute(drop)
    migrate(services.database_url, schema=SCHEMA, dimensions=dimensions, language=found.default_language)
    with connect(services.database_url, schema=SCHEMA, application="gristmill eval") as connection:
        yield connection
        if not keep:
            connection.execute(drop)


def _bar(progress: Progress, name: str) -> Any:
    task = progress.add_task(name, total=None)
    return lambda done, total: progress.update(task, completed=done, total=total)
