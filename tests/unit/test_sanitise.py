from __future__ import annotations

import tracemalloc
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sanitise import sanitise, sanitise_blocks, sanitise_line
from pipelines.types import Block, BlockKind


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ("a\0b", "ab"),
        ("lone \ud800 half", "lone half"),
        ("ex\x02ploitation", "exploitation"),
        ("ex\x02\r\nploitation", "exploitation"),
        ("im\ufffeportant", "important"),
        ("soft\u00ad\nhyphen and so\u00adft", "softhyphen and soft"),
        ("ﬁne oﬀer", "fine offer"),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("  wide \t  gap  ", "wide gap"),
        ("a\n\n\n\n\nb", "a\n\nb"),
        ("no\u00a0break", "no break"),
        ("\ufeffmark\u200b", "mark"),
        ("Contents........................12", "Contents...12"),
        ("ﻻ", "لا"),
        ("tab\x0bline\x0cfeed", "tab\nline\nfeed"),
    ],
)
def test_paragraphs(dirty: str, clean: str) -> None:
    assert sanitise(dirty) == clean


def test_code_keeps_indentation_and_tables_keep_rows() -> None:
    assert sanitise("\ndef f():\r\n\treturn  1   \n", "code") == "def f():\n\treturn  1"
    assert sanitise("a  |  b \r\nc\td", "table") == "a | b\nc\td"


def test_blocks_without_text_are_dropped_and_headings_are_one_line() -> None:
    blocks = sanitise_blocks([Block("paragraph", "\0 \x02"), Block("heading", "Part\nOne", level=1, page=3)])
    assert blocks == (Block("heading", "Part One", level=1, page=3),)


@given(st.text(alphabet=st.characters(), max_size=200), st.sampled_from(["paragraph", "table", "code", "list"]))
def test_whatever_comes_in_can_be_stored_and_a_second_pass_changes_nothing(text: str, kind: BlockKind) -> None:
    clean = sanitise(text, kind)
    clean.encode("utf-8")
    assert all(char in "\n\t" or unicodedata.category(char) not in {"Cc", "Cs"} for char in clean)
    assert sanitise(clean, kind) == clean


def test_a_line_is_one_line() -> None:
    assert sanitise_line(" a\n b ") == "a b"


@given(st.text(alphabet=st.sampled_from("ab \t\u1680\u3000\u00a0"), max_size=60))
def test_spaces_of_every_kind_become_single_ones(text: str) -> None:
    assert sanitise(text) == " ".join(text.split())


def test_the_words_of_a_large_text_are_not_held_one_by_one() -> None:
    text = "a  word " * 2**19
    tracemalloc.start()
    try:
        clean = sanitise(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert clean == ("a word " * 2**19).strip()
    assert peak < 3 * len(text)
