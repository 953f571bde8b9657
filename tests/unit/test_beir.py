"""Reading test sets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.beir import load_test_set
from pipelines.errors import PermanentError


def write(folder: Path, corpus: str, queries: str, qrels: str) -> Path:
    (folder / "corpus.jsonl").write_text(corpus)
    (folder / "queries.jsonl").write_text(queries)
    (folder / "qrels.tsv").write_text(qrels)
    return folder


CORPUS = '{"_id": "d1", "title": "T", "text": "one"}\n{"_id": "d2", "text": "two", "metadata": {"path": "x"}}\n'
QUERIES = '{"_id": "q1", "text": "?", "metadata": {"kind": "exact"}}\n{"_id": "q2", "text": "??"}\n'
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\n"


def test_a_set_is_read(tmp_path: Path) -> None:
    data = load_test_set(write(tmp_path, CORPUS, QUERIES, QRELS))
    assert [(p.id, p.text, dict(p.metadata)) for p in data.passages] == [
        ("d1", "T\none", {}),
        ("d2", "two", {"path": "x"}),
    ]
    assert data.judged == {"q1": {"d1": 2}}
    assert {name: [q.id for q in members] for name, members in data.groups().items()} == {
        "all": ["q1"],
        "exact": ["q1"],
    }


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("corpus.jsonl", '{"_id": "d1", "text": "x"}\nnot json\n', "line 2"),
        ("corpus.jsonl", json.dumps({"text": "x"}), "line 1: no _id"),
        ("queries.jsonl", json.dumps({"_id": "q", "text": None}), "line 1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, content: str, words: str) -> None:
    write(tmp_path, CORPUS, QUERIES, QRELS)
    (tmp_path / name).write_text(content)
    with pytest.raises(PermanentError, match=words) as caught:
        load_test_set(tmp_path)
    assert name in caught.value.cause


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels.tsv"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    write(tmp_path, CORPUS, QUERIES, QRELS)
    (tmp_path / name).unlink()
    with pytest.raises(PermanentError, match=name):
        load_test_set(tmp_path)
