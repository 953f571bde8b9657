"""How well the main content of web pages is told from what surrounds it, beside other ways to read a page.

The pages are real ones that trafilatura's authors annotated by hand: phrases that the text must hold and phrases, of
navigation, advertisements and comments, that it must not. Counted as their own evaluation does: a wanted phrase found
is a true positive, one missed a false negative, an unwanted one found a false positive, one kept out a true negative.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lxml import html as lxml_html
from rich.console import Console
from rich.table import Table

from pipelines.charset import decode
from pipelines.errors import PermanentError
from pipelines.extract.html import read_html
from pipelines.extract.office.partition import partition

_NAME = "trafilatura__"
_SEPARATOR = " / "
_UNWANTED = "must NOT contain:"


@dataclass(frozen=True, slots=True)
class Page:
    """A page and what was annotated of it."""

    name: str
    markup: str
    wanted: tuple[str, ...]
    unwanted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """What one reader made of all pages; `misses` names the phrases it got wrong, page by page."""

    reader: str
    true_positives: int
    false_negatives: int
    false_positives: int
    true_negatives: int
    cpu_ms: float
    misses: tuple[tuple[str, str], ...]

    @property
    def precision(self) -> float:
        """Of the annotated phrases found, the share that was wanted."""
        return self.true_positives / ((self.true_positives + self.false_positives) or 1)

    @property
    def recall(self) -> float:
        """Of the wanted phrases, the share that was found."""
        return self.true_positives / ((self.true_positives + self.false_negatives) or 1)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return 2 * self.true_positives / ((2 * self.true_positives + self.false_positives + self.false_negatives) or 1)


def load_pages(corpus: Path) -> Iterator[Page]:
    """The annotated pages of a corpus: rows of its `INDEX.tsv`, phrases parted by ` / `.

    Raises:
        OSError: there is no such corpus.
    """
    with (corpus / "INDEX.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            if not row["file"].startswith(_NAME):
                continue
            markup, _ = decode((corpus / row["file"]).read_bytes())
            _, _, unwanted = row["hard"].partition(_UNWANTED)
            wanted = row["must_contain_or_behaviour"].rpartition(" [")[0]
            yield Page(row["file"].removeprefix(_NAME), markup, _phrases(wanted), _phrases(unwanted))


def read_ours(markup: str) -> str:
    """Our text of a page."""
    try:
        return "\n".join(block.text for block in read_html(markup)[1])
    except PermanentError:
        return ""


def read_trafilatura(markup: str) -> str:
    """What trafilatura alone takes for the main text."""
    import trafilatura

    return trafilatura.extract(markup, include_comments=False) or ""


def read_unstructured(markup: str) -> str:
    """The elements of `unstructured`, which does not part content from the rest."""
    return "\n".join(str(element.text) for element in partition("html", text=markup))


def read_tags(markup: str) -> str:
    """All words of the body: tags stripped, scripts and styles left out."""
    tree = lxml_html.document_fromstring(markup.encode("utf-8"), parser=lxml_html.HTMLParser(encoding="utf-8"))
    for element in tree.xpath("//script | //style"):
        element.drop_tree()
    body = tree.find(".//body")
    return str((tree if body is None else body).text_content())


READERS: dict[str, Callable[[str], str]] = {
    "ours": read_ours,
    "trafilatura": read_trafilatura,
    "unstructured": read_unstructured,
    "tags stripped": read_tags,
}


def score(reader: str, pages: Sequence[Page]) -> Score:
    """Read every page with one reader and count."""
    counts = {"tp": 0, "fn": 0, "fp": 0, "tn": 0}
    misses: list[tuple[str, str]] = []
    READERS[reader](pages[0].markup)  # what it loads is not measured
    seconds = 0.0
    for page in pages:
        start = time.process_time()
        text = READERS[reader](page.markup)
        seconds += time.process_time() - start
        text = " ".join(text.split())
        for phrase in page.wanted:
            counts["tp" if phrase in text else "fn"] += 1
            if phrase not in text:
                misses.append((page.name, f"lost: {phrase}"))
        for phrase in page.unwanted:
            counts["fp" if phrase in text else "tn"] += 1
            if phrase in text:
                misses.append((page.name, f"kept: {phrase}"))
    each = round(seconds * 1000 / len(pages), 1)
    return Score(reader, counts["tp"], counts["fn"], counts["fp"], counts["tn"], each, tuple(misses))


def main(arguments: Sequence[str]) -> int:
    """Run the measurement and print its table; with `--json`, the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench web", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "corpus")
    parser.add_argument("--misses", action="store_true", help="name the phrases that ours got wrong")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        pages = list(load_pages(options.corpus))
    except OSError as error:
        print(f"there is no corpus of annotated pages: {error}; name one with --corpus", file=sys.stderr)
        return 2
    if not pages:
        print(f"{options.corpus}/INDEX.tsv names no annotated page", file=sys.stderr)
        return 2
    scores = [score(reader, pages) for reader in READERS]
    if options.json:
        print(json.dumps([asdict(one) | {"f1": one.f1} for one in scores], ensure_ascii=False))
        return 0
    table = Table(title=f"{len(pages)} annotated pages")
    for column in ("reader", "precision", "recall", "F1", "CPU ms a page"):
        table.add_column(column, justify="left" if column == "reader" else "right")
    for one in scores:
        table.add_row(one.reader, f"{one.precision:.3f}", f"{one.recall:.3f}", f"{one.f1:.3f}", f"{one.cpu_ms}")
    console = Console()
    console.print(table)
    if options.misses:
        for name, what in scores[0].misses:
            console.print(f"{name}: {what}", markup=False)
    return 0


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(phrase for part in text.split(_SEPARATOR) if (phrase := " ".join(part.split())))
