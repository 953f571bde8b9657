"""The search measurement on three hundred chunks: it runs, fills every cell, and what it says of recall is right."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import product
from typing import Any

import numpy as np
import psycopg
import pytest
from rich.console import Console

from bench import search
from bench.corpus import FAR_ROWS, FILTERS, HALF_WORDS, KINDS, ROWS_A_CODE, build_corpus
from worker.embedded import Services

SIZES = (300, 600)


@pytest.fixture
def served(services: Services, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tests' own server in place of one for the measurement, and its databases gone afterwards."""
    monkeypatch.setattr(search, "serving", lambda keep: nullcontext(services.database_url))
    yield
    with psycopg.connect(services.database_url, autocommit=True) as admin:
        for size in SIZES:
            admin.execute(f"drop database if exists chunks_{size} with (force)".encode())


@pytest.mark.timeout(300)
def test_a_small_run_reports_every_cell(served: None, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [str(size) for size in SIZES]
    patience = ["--cell-seconds", "600"]  # no contender is done with a cell because the machine stood still
    assert search.main(["--chunks", *sizes, "--rounds", "2", *patience, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["machine"]["pgvector"] >= "0.8"
    assert [run["chunks"] for run in answer["runs"]] == list(SIZES)
    for run in answer["runs"]:
        every_cell(run)

    assert search.main(["--chunks", *sizes, "--rounds", "1", *patience]) == 0
    text = capsys.readouterr().out
    assert "loaded in" not in text, "databases of the same content are used again"
    assert "a filter that leaves 20 far rows returns 20 of them" in text
    assert "600 chunks as a multiple of 300" in text


def every_cell(run: dict[str, Any]) -> None:
    assert set(run["load_seconds"]) == {"rows", "hnsw", "tutorial", "statistics", "vacuum"}
    cells = list(product(KINDS, FILTERS))
    figures = {(f["kind"], f["filter"], f["contender"]): f for f in run["figures"]}
    assert set(figures) == {(*cell, contender) for cell in cells for contender in search.CONTENDERS}
    for figure in figures.values():
        assert figure["samples"] == 2
        assert 0 < figure["p50_ms"] <= figure["p95_ms"]
    # One cell alone may be too short for a kernel whose clock ticks in 10 ms.
    assert all(figure["cpu_ms"] >= 0 for figure in figures.values())
    assert sum(figure["cpu_ms"] for figure in figures.values()) > 0

    assert [(ratio["kind"], ratio["filter"]) for ratio in run["ratios"]] == cells
    for ratio in run["ratios"]:
        cell = ratio["kind"], ratio["filter"]
        p50 = {contender: figures[*cell, contender]["p50_ms"] for contender in search.CONTENDERS}
        assert ratio["to_repaired"] == pytest.approx(p50["ours"] / p50["repaired"], abs=0.001)
        assert ratio["to_legs"] == pytest.approx(p50["ours"] / (p50["vector leg"] + p50["lexical leg"]), abs=0.01)
    rows = {(ratio["kind"], ratio["filter"]): ratio["rows"] for ratio in run["ratios"]}
    assert rows[KINDS[2], "none"] == pytest.approx(run["chunks"] / 2, rel=0.2)
    assert rows[KINDS[2], "25 %"] == pytest.approx(run["chunks"] / 8, rel=0.3)

    possible = {"none": 100, "25 %": min(100, run["chunks"] // 4), "0.2 %": -(-(run["chunks"] - 77) // 500)}
    for recall in run["recall"]:
        assert recall["returned"] == recall["possible"] == possible[recall["filter"]]
        assert recall["recall"] >= 0.97
    assert run["far_found"] == run["far_rows"] == FAR_ROWS


def test_work_too_short_for_the_clock_is_shown_without_a_multiple(capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel whose clock ticks in 10 ms counts nothing for a question of 0.1 ms."""
    assert search.multiple(0.4, 0.1) == 4
    assert search.multiple(0.4, 0.0) is None
    runs = [
        search.Run(
            chunks,
            {},
            tuple(
                search.Figure(*cell, name, 0.2, 0.3, 0.0, 1)
                for *cell, name in product(KINDS, FILTERS, search.CONTENDERS)
            ),
            tuple(search.Ratio(*cell, 0.5, None, 0.5, None, 1) for cell in product(KINDS, FILTERS)),
            (),
            0,
            0,
        )
        for chunks in SIZES
    ]
    search.show({}, runs, Console(width=150))
    text = capsys.readouterr().out
    assert text.count("0.50 (-)") == 2 * len(runs) * len(KINDS) * len(FILTERS)
    assert text.count("1.0 (-)") == len(KINDS) * len(FILTERS) * len(search.CONTENDERS)


def test_the_collection_is_what_it_says() -> None:
    corpus = build_corpus(400, 5)
    assert corpus.texts == build_corpus(400, 5).texts
    assert all(80 <= len(text.split()) <= 120 for text in corpus.texts)
    assert np.linalg.norm(corpus.vectors, axis=1) == pytest.approx(1, abs=1e-5)
    for word in HALF_WORDS:
        assert sum(word in text.lower() for text in corpus.texts) == pytest.approx(200, abs=50)
    assert sum("qx-4711" in text.lower() for text in corpus.texts) == ROWS_A_CODE
    for question in corpus.questions[KINDS[1]]:
        rare = question.text.split()
        assert len(rare) == 2
        assert any(all(word in text.lower() for word in rare) for text in corpus.texts)
    assert all(len(question.text.split()) == 12 for question in corpus.questions[KINDS[3]])
    distances = corpus.vectors @ corpus.far.vector
    assert sorted(distances[corpus.far_rows]) == sorted(distances)[:FAR_ROWS]


def test_the_clock_of_a_process_counts_its_work() -> None:
    clock = search.cpu_clock(os.getpid())
    began, expected = clock(), time.process_time()
    while time.process_time() - expected < 0.3:
        pass
    assert clock() - began == pytest.approx(0.3, abs=0.1), "to a few ticks, which may be of 10 ms"
