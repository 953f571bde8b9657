"""Cutting one text, and the header that is repeated where a table is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.cut import clip, header_end, repeated_header, split, starts_grapheme
from pipelines.tokens import UNIT, estimate_tokens, weigh

FAMILY = "👨‍👩‍👧‍👦"
SENTENCES = "The pump must be switched off before the cover is opened. Then wait until the light goes out. "


@given(
    st.lists(st.text(max_size=20) | st.sampled_from([SENTENCES, FAMILY, "\n", "漢字。"]), max_size=40),
    st.integers(1, 80),
)
def test_pieces_are_the_text(parts: list[str], tokens: int) -> None:
    text = "".join(parts)
    assert "".join(split(text, tokens * UNIT, UNIT)) == text


@pytest.mark.parametrize(
    "text", ["A" * 9_000, "漢" * 3_000, "word " * 3_000, SENTENCES * 50, FAMILY * 300, "\n" * 9_000]
)
@pytest.mark.parametrize("tokens", [16, 64, 500])
def test_no_piece_is_over_the_budget(text: str, tokens: int) -> None:
    assert max(map(estimate_tokens, split(text, tokens * UNIT, tokens * UNIT // 16))) <= tokens


def test_sentences_then_words_then_graphemes() -> None:
    assert all(piece.endswith((". ", ".")) for piece in split(SENTENCES * 20, 30 * UNIT, UNIT))
    assert {piece.strip() for piece in split("word " * 500, 20 * UNIT, UNIT)} <= {
        " ".join(["word"] * n) for n in range(99)
    }
    assert all(len(piece) % len(FAMILY) == 0 for piece in split(FAMILY * 90, 30 * UNIT, UNIT))


def test_where_a_text_is_cut_does_not_hang_on_what_stands_far_behind_it() -> None:
    text = SENTENCES * 40
    short, long = list(split(text, 64 * UNIT, 4 * UNIT)), list(split(text + "漢" * 5_000, 64 * UNIT, 4 * UNIT))
    assert long[: len(short) - 1] == short[:-1]


@pytest.mark.parametrize("tokens", [1, 2, 8])
def test_a_small_budget_cuts_no_grapheme(tokens: int) -> None:
    text = f"{FAMILY} e\u0301 👍🏽 🇫🇷🇩🇪 " * 20
    pieces = list(split(text, tokens * UNIT, UNIT))
    assert "".join(pieces) == text
    assert sum(FAMILY in piece for piece in pieces) == 20
    assert not any(piece.startswith(("\u0301", "\u200d", "🏽")) for piece in pieces)


@pytest.mark.parametrize(
    ("text", "longest", "clipped"),
    [
        ("pump", 4, "pump"),
        ("pumps", 4, "pum…"),
        ("a b c", 3, "a…"),
        ("ae\u0301iou", 4, "ae\u0301…"),
        ("ae\u0301iou", 3, "a…"),
        ("x" + FAMILY, 5, "x…"),
        ("🇫🇷🇩🇪🇮🇹", 4, "🇫🇷…"),
        (FAMILY, 3, "…"),
    ],
)
def test_clip(text: str, longest: int, clipped: str) -> None:
    assert clip(text, longest) == clipped


@pytest.mark.parametrize(
    ("text", "at", "starts"),
    [("a b", 2, True), ("a \u0301b", 2, False), ("a. ", 3, True), ("a \u200db", 2, False), ("a\n\u0301", 2, True)],
)
def test_starts_grapheme(text: str, at: int, starts: bool) -> None:
    assert starts_grapheme(text, at) is starts


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        ("| a | b |\n| --- | --- |\n", "| 1 | 2 |\n"),
        ("| a | b |\n|:--|--:|\n", "| 1 | 2 |"),
        ("a  b\n---+---\n", "1  2"),
        ("| a | b |\n", "| 1 | 2 |\n| --- | --- |"),
        ("| a |\n", "| - x |"),
        ("| a |\n| --- |", ""),
        ("| a |", ""),
    ],
)
def test_header_end(header: str, rows: str) -> None:
    assert header_end(header + rows) == len(header)


def test_almost_a_rule_takes_no_time() -> None:
    assert header_end("| a |\n" + "-" * 1_000_000 + "x\n") == 6


HEADER = "| Article number | Description of the article in full | Price (EUR) |\n| --- | --- | --- |\n"


@pytest.mark.parametrize(
    ("most", "repeated"),
    [
        (3_548, HEADER),
        (3_547, "| Article number | Description of the arti… | Price (EUR) |\n| --- | --- | --- |\n"),
        (3_300, "| Article num… | Description… | Price (EUR) |\n| --- | --- | --- |\n"),
        (2_000, "| Article num… | Description… | Price (EUR) |\n"),
        (1_500, "| Artic… | Descr… | Price… |\n"),
        (1_000, ""),
    ],
)
def test_a_heavy_header_is_repeated_with_shorter_names(most: int, repeated: str) -> None:
    found = repeated_header(HEADER + "| 8842-B | Pump | 12.50 |\n", most)
    assert found == repeated
    assert weigh(found) <= most


def test_no_header_is_repeated_that_has_no_columns_or_no_end() -> None:
    assert repeated_header("word " * 90 + "\n1", 20 * UNIT) == ""
    assert repeated_header("| a | b |", 20 * UNIT) == ""
    assert repeated_header("| a " * 100_000 + "|\n| 1 |", 20 * UNIT) == ""
