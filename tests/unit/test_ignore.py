"""Ignore patterns: the defaults, and those of the operator."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from worker.watchers.ignore import Ignore


@pytest.mark.parametrize(
    ("relative", "ignored"),
    [
        ("report.pdf", False),
        ("a/b/report.pdf", False),
        ("notes.partial.md", False),
        ("template.md", False),
        ("~report.docx", False),
        (".DS_Store", True),
        (".env", True),
        ("~$report.docx", True),
        (".~lock.report.odt#", True),
        ("film.part", True),
        ("film.PARTIAL", True),
        ("film.filepart", True),
        ("x.crdownload", True),
        ("x.download", True),
        ("x.tmp", True),
        ("x.TMP", True),
        ("x.swp", True),
        ("report.md~", True),
        ("#report.md#", True),
        ("Thumbs.db", True),
        ("Desktop.ini", True),
        (".git/config", True),
        ("a/.git/hooks/x.md", True),
        ("web/node_modules/x/readme.md", True),
        ("zip/__MACOSX/x.txt", True),
        (".stfolder/x.md", True),
        ("a/.stversions/x.md", True),
        ("photos/@eaDir/x.jpg", True),
        ("node_modules", False),
        ("page.download/x.html", True),
    ],
)
def test_defaults(relative: str, ignored: bool) -> None:
    assert Ignore().beneath(PurePosixPath(relative)) is ignored


@pytest.mark.parametrize(
    ("pattern", "relative", "ignored"),
    [
        ("*.bak", "a/b.bak", True),
        ("*.bak", "a/b.BAK", True),
        ("*.bak", "b.bak.md", False),
        ("archive", "x/archive/y/z.md", True),
        ("archive", "x/archive", True),
        ("archive/", "x/archive/z.md", True),
        ("archive/", "x/archive", False),
        ("reports/draft*", "reports/draft-1.md", True),
        ("reports/draft*", "reports/drafts/deep/x.md", True),
        ("reports/draft*", "old/reports/draft-1.md", False),
        ("[ab].md", "a.md", True),
        ("[ab].md", "c.md", False),
    ],
)
def test_patterns_of_the_operator(pattern: str, relative: str, ignored: bool) -> None:
    assert Ignore([pattern]).beneath(PurePosixPath(relative)) is ignored


def test_own_patterns_add_to_the_defaults() -> None:
    assert Ignore(["*.bak"]).beneath(PurePosixPath("x.tmp"))
