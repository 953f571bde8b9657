"""The measurement of web pages: how its phrases are read and counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.web import READERS, load_pages, main, score

PAGE = (
    "<html><body><nav><a href='/'>Our shop</a></nav><article><h1>Pumps</h1>"
    + "".join(f"<p>The pump stops when the pressure falls below {n} bar, and shows E-4012.</p>" for n in range(9))
    + "</article><script>var hidden</script><footer>All rights reserved</footer></body></html>"
)


def _corpus(folder: Path) -> Path:
    (folder / "trafilatura__a.html").write_text(PAGE)
    rows = [
        ("file", "source", "license", "hard", "must_contain_or_behaviour"),
        (
            "trafilatura__a.html",
            "x",
            "y",
            "real page; must NOT contain: Our shop / All rights / nowhere",
            'below 3 bar, and / shows "E-9" / Pumps [evaldata.json]',
        ),
        ("other.pdf", "x", "y", "z", "words"),
    ]
    (folder / "INDEX.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    return folder


def test_phrases_are_counted_as_annotated(tmp_path: Path) -> None:
    (page,) = load_pages(_corpus(tmp_path))
    assert page.wanted == ("below 3 bar, and", 'shows "E-9"', "Pumps")
    assert page.unwanted == ("Our shop", "All rights", "nowhere")
    ours, tags = score("ours", [page]), score("tags stripped", [page])
    assert (ours.true_positives, ours.false_negatives, ours.false_positives, ours.true_negatives) == (2, 1, 0, 3)
    assert (tags.true_positives, tags.false_negatives, tags.false_positives, tags.true_negatives) == (2, 1, 2, 1)
    assert (ours.precision, ours.f1) == (1.0, 0.8)
    assert tags.precision == 0.5
    assert ours.misses == (("a.html", 'lost: shows "E-9"'),)


def test_the_table_names_every_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--corpus", str(_corpus(tmp_path)), "--misses"]) == 0
    printed = capsys.readouterr().out
    assert all(reader in printed for reader in READERS)
    assert 'a.html: lost: shows "E-9"' in printed


def test_a_corpus_that_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--corpus", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err
