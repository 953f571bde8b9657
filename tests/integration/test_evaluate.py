"""The instrument: figures that can be worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from psycopg import Connection

from pipelines.beir import Passage, Question, TestSet
from pipelines.evaluate import compare, index_test_set, measure

DATA = TestSet(
    "hand",
    tuple(
        Passage(f"d{number}", text, {})
        for number, text in enumerate(["pump E-1 alpha", "pump E-2 beta", "valve gamma", "tank delta"])
    ),
    (
        Question("exact", "what does E-2 mean?", "code"),
        Question("near", "something unheard of", "meaning"),
        Question("unjudged", "?", None),
    ),
    {"exact": {"d1": 1}, "near": {"d3": 1, "d2": 1}},
)
PASSAGES = np.eye(8, dtype=np.float32)[:4]
QUESTIONS = np.array([np.eye(8)[0], np.eye(8)[3] + 0.5 * np.eye(8)[0], np.eye(8)[5]], dtype=np.float32)


@pytest.fixture
def indexed(database: Connection[Any]) -> Connection[Any]:
    index_test_set(database, DATA, PASSAGES, tutorial=True)
    return database


def test_scores_are_what_hand_and_paper_give(indexed: Connection[Any]) -> None:
    vector = measure(indexed, DATA, QUESTIONS, "vector")
    # The vector of `exact` points at d0; d1 to d3 are equally far and come by id: d1 is second.
    assert vector.by_question["exact"]["hit@1"] == 0
    assert vector.by_question["exact"]["mrr@10"] == pytest.approx(50)
    # `near`: d3, d0, then d1, d2 by id: relevant at ranks 1 and 4.
    gain = 1 + 1 / np.log2(5)
    assert vector.by_question["near"]["ndcg@10"] == pytest.approx(100 * gain / (1 + 1 / np.log2(3)))
    assert vector.by_question["near"]["recall@5"] == 100
    assert set(vector.by_question) == {"exact", "near"}

    hybrid = measure(indexed, DATA, QUESTIONS, "hybrid")
    assert hybrid.by_question["exact"]["hit@1"] == 100
    assert hybrid.summary(["exact"])["fail@20"] == 0
    keyword = measure(indexed, DATA, QUESTIONS, "keyword")
    assert keyword.by_question["near"]["recall@20"] == 0
    assert keyword.summary(["exact", "near"])["hit@1"] == 50
    assert keyword.summary(["exact", "near"])["queries"] == 2


def test_the_tutorials_sql_misses_the_code(indexed: Connection[Any]) -> None:
    tutorial = measure(indexed, DATA, QUESTIONS, "tutorial")
    assert tutorial.by_question["exact"]["hit@1"] == 0


def test_differences_are_paired(indexed: Connection[Any]) -> None:
    vector = measure(indexed, DATA, QUESTIONS, "vector")
    hybrid = measure(indexed, DATA, QUESTIONS, "hybrid")
    found = compare(vector, hybrid, "hit@1", ["exact"])
    assert (found.mean, found.low, found.high) == (100, 100, 100)
    assert compare(vector, vector, "ndcg@10", ["exact", "near"]).mean == 0
