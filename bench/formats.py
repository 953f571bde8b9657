"""The corpus of hard files beside a developer's checkout, read as `gristmill extract` reads it, by format.

`formats.tsv` says for each file what must come of it: `read` or the code of an error (with a comma between where more
than one will do), phrases that the text must contain (` / ` between), phrases that it must not contain, decisions of
pages (`number=decision:reason`), names of documents inside it; and, where we fall short of that today, the cause.
"""

from __future__ import annotations

import argparse
import csv
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from worker.cli.extract import describe
from worker.settings import Settings

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"
EXPECTED = Path(__file__).with_suffix(".tsv")
LONGEST_SECONDS = 90.0
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must come of a file; `short_of` is why it does not, where it does not."""

    file: str
    expected: str
    phrases: str
    unwanted: str
    pages: str
    children: str
    short_of: str

    @property
    def format(self) -> str:
        """What the name says that the file is."""
        return Path(self.file).suffix.lower().lstrip(".") or "none"


def load_expectations() -> list[Expectation]:
    """All rows of `formats.tsv`."""
    with EXPECTED.open(encoding="utf-8", newline="") as file:
        return [Expectation(**row) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def shortcomings(wanted: Expectation, answer: Mapping[str, Any]) -> list[str]:
    """In what an answer of `gristmill extract` is not as wanted; empty where it is."""
    found = []
    outcome = "read" if answer["state"] == "done" else answer["error"]["code"]
    if outcome not in wanted.expected.split(","):
        found.append(f"{outcome} instead of {wanted.expected}")
    if answer["error"] and not (answer["error"]["message"] and answer["error"]["remedy"]):
        found.append("an error without cause or remedy")
    if outcome == "read":
        text = _plain(answer["text"])
        decisions = {f"{page['number']}={page['decision']}:{page['reason']}" for page in answer["pages"]}
        names = {child["name"] for child in answer["children"]}
        found += [f"{phrase!r} is missing" for phrase in _parts(wanted.phrases) if phrase not in text]
        found += [f"{phrase!r} is there" for phrase in _parts(wanted.unwanted) if phrase in text]
        found += [f"not decided: {decision}" for decision in wanted.pages.split() if decision not in decisions]
        found += [f"not found inside: {name}" for name in _parts(wanted.children) if name not in names]
    if answer["seconds"] >= LONGEST_SECONDS:
        found.append(f"{answer['seconds']} seconds")
    found += [f"the character {bad[0]!r}" for value in _strings(answer) if (bad := _CONTROLS.search(value))]
    if [page["number"] for page in answer["pages"]] != list(range(1, len(answer["pages"]) + 1)):
        found.append("pages are not numbered 1, 2, 3, …")
    if lost := _uncovered(answer["text"], answer["chunks"]):
        found.append(f"{len(lost)} characters are in no chunk")
    return found


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _parts(text: str) -> list[str]:
    return [_plain(part) for part in text.split(" / ") if part.strip()]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _strings(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _strings(inner)


def _uncovered(text: str, chunks: Sequence[Mapping[str, Any]]) -> str:
    covered = bytearray(len(text))
    for chunk in chunks:
        covered[chunk["start"] : chunk["end"]] = b"\x01" * (chunk["end"] - chunk["start"])
    return "".join(char for char, known in zip(text, covered, strict=True) if not known and not char.isspace())


def main(arguments: Sequence[str]) -> int:
    """Print the table by format, and every file that is not as it should be, with the cause."""
    argparse.ArgumentParser(prog="python -m bench formats", description=__doc__).parse_args(list(arguments))
    console = Console()
    if not CORPUS.is_dir():
        console.print(f"{CORPUS} is not there: nothing to measure")
        return 0
    counts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    short: list[tuple[str, str]] = []
    for wanted in track(load_expectations(), "reading", console=Console(stderr=True), transient=True):
        answer = describe(CORPUS / wanted.file, wanted.file, Settings())
        problems = shortcomings(wanted, answer)
        cells = counts[wanted.format]
        cells["files"] += 1
        cells["read" if answer["state"] == "done" else "refused"] += 1
        cells["as it should be"] += not problems
        cells["pages"] += len(answer["pages"])
        cells["seconds"] += answer["seconds"]
        if problems:
            short.append((wanted.file, "; ".join(problems) + (f" ({wanted.short_of})" if wanted.short_of else "")))
    table = Table("format", "files", "read", "refused", "as it should be", "pages", "seconds")
    for name, cells in sorted(counts.items(), key=lambda item: -item[1]["files"]):
        whole = [f"{cells[column]:.0f}" for column in ("files", "read", "refused", "as it should be", "pages")]
        table.add_row(name, *whole, f"{cells['seconds']:.1f}")
    console.print(table)
    for name, problem in short:
        console.print(f"{name}: {problem}", markup=False, soft_wrap=True)
    return 0
