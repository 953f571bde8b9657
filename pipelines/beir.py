"""Retrieval test sets in the BEIR layout: `corpus.jsonl`, `queries.jsonl`, `qrels.tsv` in one folder.

Layout: Thakur et al. 2021, "BEIR: A Heterogenous Benchmark for Zero-shot Evaluation of Information Retrieval Models".
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import PermanentError


@dataclass(frozen=True, slots=True)
class Passage:
    """One row of the corpus; `text` has the title in front where there is one."""

    id: str
    text: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """One query; `kind` is its group, from `metadata.kind`, else None."""

    id: str
    text: str
    kind: str | None


@dataclass(frozen=True, slots=True)
class TestSet:
    """A corpus, questions, and which passages are relevant to which question, with their grade.

    Attributes:
        judged: questions that have at least one relevant passage are the ones that count.
    """

    __test__ = False  # not a class of tests

    name: str
    passages: tuple[Passage, ...]
    questions: tuple[Question, ...]
    judged: Mapping[str, Mapping[str, int]]

    @property
    def digest(self) -> str:
        """Digest of the corpus, to know it again."""
        found = hashlib.sha256()
        for passage in self.passages:
            found.update(f"{passage.id}\0{passage.text}\0".encode())
        return found.hexdigest()[:16]

    def groups(self) -> dict[str, list[Question]]:
        """Judged questions by kind, and all of them under `all`."""
        found: dict[str, list[Question]] = {"all": []}
        for question in self.questions:
            if question.id in self.judged:
                found["all"].append(question)
                if question.kind:
                    found.setdefault(question.kind, []).append(question)
        return found


def load_test_set(folder: Path) -> TestSet:
    """Read a test set.

    Raises:
        PermanentError: a file is missing or not as it should be; the error names the file and the line.
    """
    passages = tuple(
        Passage(
            str(row["_id"]),
            "\n".join(part for part in (row.get("title"), row["text"]) if part).strip(),
            row.get("metadata") or {},
        )
        for row in _rows(folder / "corpus.jsonl")
    )
    questions = tuple(
        Question(str(row["_id"]), row["text"], (row.get("metadata") or {}).get("kind"))
        for row in _rows(folder / "queries.jsonl")
    )
    judged: dict[str, dict[str, int]] = {}
    for line in _judgements(folder):
        grade = int(float(line[2]))
        if grade > 0:
            judged.setdefault(line[0], {})[line[1]] = grade
    return TestSet(folder.resolve().name, passages, questions, judged)


def _rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                row = json.loads(line)
                if "_id" not in row or not isinstance(row.get("text"), str):
                    raise PermanentError(
                        "bad_test_set", f"{path}, line {number}: no _id or no text", "see BEIR's layout"
                    )
                rows.append(row)
    except FileNotFoundError as error:
        raise PermanentError(
            "no_test_set", f"{path} does not exist", "give a folder with corpus.jsonl, queries.jsonl and qrels.tsv"
        ) from error
    except json.JSONDecodeError as error:
        raise PermanentError(
            "bad_test_set", f"{path}, line {len(rows) + 1}: {error}", "one JSON object a line"
        ) from error
    return rows


def _judgements(folder: Path) -> list[list[str]]:
    path = next((p for p in (folder / "qrels.tsv", folder / "qrels" / "test.tsv") if p.is_file()), folder / "qrels.tsv")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, delimiter="\t"))
    except FileNotFoundError as error:
        raise PermanentError("no_test_set", f"{path} does not exist", "give a folder with qrels.tsv") from error
    return rows[1:]
