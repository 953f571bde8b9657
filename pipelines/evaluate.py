"""Retrieval quality on a test set, measured through the very SQL that users call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

import ir_measures
import numpy as np
from ir_measures import RR, R, Success, nDCG
from numpy.typing import NDArray
from pgvector import Vector as PgVector
from psycopg import Connection
from psycopg.types.json import Jsonb

from pipelines.beir import TestSet
from pipelines.language import document_language

EvalMode = Literal["hybrid", "vector", "keyword", "rrf", "tutorial"]
Progress = Callable[[int, int], None]

DEPTH = 20
MEASURES = {
    "hit@1": Success @ 1,
    "hit@20": Success @ 20,
    "recall@5": R @ 5,
    "recall@10": R @ 10,
    "recall@20": R @ 20,
    "mrr@10": RR @ 10,
    "ndcg@10": nDCG @ 10,
}

SEARCH = "select metadata ->> '_id' from search_documents(%(text)s, %(vector)s, 20, mode => %(mode)s, rrf_k => %(k)s)"
TUTORIAL = (
    "select d.metadata ->> '_id' from tutorial_search(%(text)s, %(vector)s, 20) with ordinality as s(id, score, place)"
    " join documents d on d.id = s.id order by place"
)


@dataclass(frozen=True, slots=True)
class Measured:
    """Scores of one mode: each measure for each judged question, in percent.

    Attributes:
        by_question: question id to measure to value; `fail@20` is 100 - `recall@20`.
    """

    mode: EvalMode
    by_question: Mapping[str, Mapping[str, float]]

    def summary(self, questions: Sequence[str]) -> dict[str, float]:
        """Means over some questions, rounded to hundredths, and how many questions they are."""
        rows = [self.by_question[question] for question in questions]
        means = {name: round(float(np.mean([row[name] for row in rows])), 2) for name in rows[0]}
        return {**means, "queries": len(rows)}


def index_test_set(
    connection: Connection[Any],
    data: TestSet,
    vectors: NDArray[np.float32],
    *,
    language: str = "english",
    headers: Sequence[str | None] | None = None,
    tutorial: bool = False,
    progress: Progress | None = None,
) -> None:
    """Put a corpus into `documents` of the schema that comes first on the search path, one row a passage.

    Args:
        vectors: shape `(passages, dimensions)`, in the order of the corpus.
        language: for passages whose language cannot be told.
        headers: context header of each passage, None for none.
        tutorial: also fill the table that the tutorials' function reads.
    """
    connection.execute("truncate documents, lexeme_statistics, index_statistics")
    index = connection.execute("select pg_get_indexdef('documents_embedding'::regclass)").fetchone()
    assert index is not None
    connection.execute("drop index documents_embedding")
    total = len(data.passages)
    batch = 500
    with connection.cursor() as cursor:
        for start in range(0, total, batch):
            cursor.executemany(
                "insert into documents (content, context, language, metadata, embedding) values (%s, %s, %s, %s, %b)",
                [
                    (
                        passage.text.replace("\0", ""),
                        headers[at] if headers else None,
                        document_language(passage.text, language),
                        Jsonb({**passage.metadata, "_id": passage.id}),
                        PgVector(vectors[at]),
                    )
                    for at, passage in enumerate(data.passages[start : start + batch], start)
                ],
            )
            if progress:
                progress(min(start + batch, total), total)
    connection.execute(index[0].encode())
    if tutorial:
        connection.execute((files("sql") / "baseline" / "tutorial.sql").read_bytes())
        connection.execute("truncate tutorial_documents")
        connection.execute(
            "insert into tutorial_documents (id, content, embedding) select id, content, embedding from documents"
        )
    connection.execute("select refresh_statistics(1000000)")
    connection.execute("analyze documents")


def measure(
    connection: Connection[Any],
    data: TestSet,
    vectors: NDArray[np.float32],
    mode: EvalMode,
    *,
    progress: Progress | None = None,
) -> Measured:
    """Ask every judged question in one mode and score the answers.

    Args:
        vectors: shape `(questions, dimensions)`, in the order of the questions.
    """
    statement = TUTORIAL if mode == "tutorial" else SEARCH
    judged = [(at, question) for at, question in enumerate(data.questions) if question.id in data.judged]
    run: dict[str, dict[str, float]] = {}
    for number, (at, question) in enumerate(judged, 1):
        values = {
            "text": question.text.replace("\0", ""),
            "vector": PgVector(vectors[at]),
            "mode": "hybrid" if mode == "rrf" else mode,
            "k": 20 if mode == "rrf" else None,
        }
        rows = connection.execute(statement.encode(), values).fetchall()
        # The evaluator sorts by score again: one that falls with the rank keeps our order.
        run[question.id] = {row[0]: float(DEPTH - place) for place, row in enumerate(rows)}
        if progress:
            progress(number, len(judged))
    return Measured(mode, _scores(data, run))


def _scores(data: TestSet, run: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    names = {measure: name for name, measure in MEASURES.items()}
    found: dict[str, dict[str, float]] = {question: dict.fromkeys(MEASURES, 0.0) for question in run}
    judged = {question: dict(data.judged[question]) for question in run}
    for metric in ir_measures.iter_calc(list(MEASURES.values()), judged, {k: dict(v) for k, v in run.items()}):
        found[metric.query_id][names[metric.measure]] = 100 * float(metric.value)
    for scores in found.values():
        scores["fail@20"] = 100 - scores["recall@20"]
    return found


@dataclass(frozen=True, slots=True)
class Difference:
    """How much better the second setting is than the first, on the same questions.

    Attributes:
        mean: of the differences, in points.
        low, high: 95 % interval by paired bootstrap.
    """

    mean: float
    low: float
    high: float


def compare(first: Measured, second: Measured, name: str, questions: Sequence[str], *, seed: int = 7) -> Difference:
    """Paired bootstrap of one measure (Efron, Tibshirani 1993; 10,000 samples of the questions)."""
    differences = np.array([second.by_question[q][name] - first.by_question[q][name] for q in questions])
    random = np.random.default_rng(seed)
    samples = differences[random.integers(0, len(differences), (10_000, len(differences)))].mean(axis=1)
    low, high = np.percentile(samples, [2.5, 97.5])
    return Difference(round(float(differences.mean()), 2), round(float(low), 2), round(float(high), 2))
