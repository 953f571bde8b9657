"""Whatever a tokeniser counts: no text over the limit, nothing lost, no grapheme cut, nothing else moved."""

from __future__ import annotations

import random
import unicodedata
import zlib
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.chunk import ChunkRules, chunk
from pipelines.embed import Embedder, EmbedderSpec, limit_of, open_embedder
from pipelines.errors import ConfigurationError
from pipelines.tokens import Limit
from pipelines.types import Block, BlockKind, Chunk, Extracted

FAMILY = "👨‍👩‍👧‍👦"
SIZE = 8_000

Count = Callable[[str], int]


def document(*blocks: Block, title: str | None = None) -> Extracted:
    return Extracted("text/plain", title, blocks)


def one_block(text: str, kind: BlockKind = "paragraph") -> Extracted:
    return document(Block(kind, text))


def by_bytes(text: str) -> int:
    return len(text.encode())


def by_whim(text: str) -> int:
    """Two to five tokens a character, by what stands next to it, so that a part may count more than the whole."""
    return sum(2 + zlib.crc32(text[at : at + 3].encode()) % 4 for at in range(len(text)))


def by_word(text: str) -> int:
    """Like WordPiece with unknown words: hardly anything, however long the text."""
    return len(text.split()) + 2


@cache
def use() -> Embedder:
    return open_embedder(EmbedderSpec("use"))


def by_use(text: str) -> int:
    return use().count_tokens(text)


COUNTS: list[Count] = [by_bytes, by_whim, by_word, by_use]


def uncovered(extracted: Extracted, chunks: list[Chunk]) -> str:
    """The text that is in no chunk, without blank space."""
    position, left = 0, ""
    for one in chunks:
        assert one.start < one.end
        left += extracted.text[position : one.start]
        position = max(position, one.end)
    return "".join((left + extracted.text[position:]).split())


def cuts_a_grapheme(text: str, at: int) -> bool:
    """By the marks of the Unicode database alone, without the segmentation that the code uses."""
    if not 0 < at < len(text):
        return False
    before, behind = text[at - 1], text[at]
    if unicodedata.category(before) in ("Cc", "Cf", "Cn", "Zl", "Zp") and before != "\u200d":
        return False  # a line end and the like takes no mark
    flags = 0
    while flags < at and "\U0001f1e6" <= text[at - 1 - flags] <= "\U0001f1ff":
        flags += 1
    return (
        unicodedata.category(behind) in ("Mn", "Me")
        or behind in "\u200d\ufe0f"
        or ("\U0001f3fb" <= behind <= "\U0001f3ff" and unicodedata.category(before) == "So")
        or (before == "\u200d" and unicodedata.category(behind) == "So")
        or ("\U0001f1e6" <= behind <= "\U0001f1ff" and flags % 2 == 1)
    )


def table(rows: int) -> str:
    return "| code | price |\n| --- | --- |\n" + "\n".join(f"| A-{row} | {row}.00 EUR |" for row in range(rows))


DEGENERATE = {
    "one letter": one_block("A" * SIZE),
    "ideographs": one_block("漢" * SIZE),
    "combining": one_block("e" + "\u0301" * SIZE),
    "accents": one_block("e\u0301" * (SIZE // 2)),
    "families": one_block(FAMILY * (SIZE // len(FAMILY))),
    "joined without end": one_block("👩\u200d" * (SIZE // 2)),
    "flags": one_block("🇫🇷" * (SIZE // 2)),
    "one line": one_block("word " * (SIZE // 5)),
    "ligature": one_block("\ufdfa" * SIZE),
    "full stops": one_block("." * SIZE),
    "blank within": one_block("x" + "\n" * SIZE + "y" + " " * SIZE + "z"),
    "table with one row": one_block("| a | b |\n| --- | --- |\n| " + "x" * SIZE + " |\n| 1 | 2 |", "table"),
    "table with a header without end": one_block(
        "| " + "name | " * (SIZE // 7) + "\n| --- |\n" + "| 1 |\n" * 99, "table"
    ),
    "almost a rule": one_block("| a |\n" + "-" * SIZE + "x\n| 1 |", "table"),
    "table": one_block(table(SIZE // 16), "table"),
    "code without lines": one_block("x=1;" * (SIZE // 4), "code"),
    "lines": one_block("a\n" * (SIZE // 2), "code"),
    "headings": document(*[Block("heading", "word", 1 + at % 6) for at in range(SIZE // 10)]),
    "a heading without end": document(Block("heading", "word " * (SIZE // 5), 1), Block("paragraph", "text")),
}


@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize(("count", "most"), [(by_bytes, 120), (by_use, 40)])
def test_degenerate_texts(name: str, count: Count, most: int) -> None:
    extracted = DEGENERATE[name]
    chunks = chunk(extracted, ChunkRules(), title="T" * 5_000, limit=Limit(most, count))
    assert max(count(one.indexed_text) for one in chunks) <= most
    assert uncovered(extracted, chunks) == ""
    assert [one.index for one in chunks] == list(range(len(chunks)))


parts = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), min_size=1, max_size=30),
    st.sampled_from(
        ["The pump stops. ", "漢字。", FAMILY, "👍🏽", "🇫🇷🇩🇪", "e\u0301", " \u0301", "नि", "\n", "| a | b |\n", " "]
    ),
)
kinds: st.SearchStrategy[BlockKind] = st.sampled_from(["heading", "paragraph", "list", "table", "code"])
blocks = st.builds(
    lambda kind, found, level, page, times: Block(
        kind, ("".join(found).strip() or "x") * times, level if kind == "heading" else 0, page
    ),
    kinds, st.lists(parts, max_size=30), st.integers(1, 6), st.none() | st.integers(1, 9), st.integers(1, 20),
)  # fmt: skip
documents = st.builds(
    lambda found, title: document(*found, title=title),
    st.lists(blocks, min_size=1, max_size=6),
    st.none() | st.text(st.characters(codec="utf-8"), max_size=200),
)
budgets = st.sampled_from([ChunkRules(), ChunkRules(64, 16), ChunkRules(300, 0)])


@pytest.mark.parametrize("count", COUNTS)
@settings(max_examples=60)
@given(documents, budgets, st.integers(100, 400))
@example(document(Block("table", table(90)), title="漢" * 200), ChunkRules(), 100)
def test_nothing_is_over_the_limit_and_nothing_is_lost(
    count: Count, extracted: Extracted, rules: ChunkRules, most: int
) -> None:
    limit = Limit(most, count)
    chunks = chunk(extracted, rules, limit=limit)
    assert all(limit.admits(one.indexed_text) for one in chunks)
    assert uncovered(extracted, chunks) == ""
    assert chunks == chunk(extracted, rules, limit=limit)


@settings(max_examples=60)
@given(documents, budgets, st.integers(100, 400))
def test_chunks_that_fit_stay_as_they_are(extracted: Extracted, rules: ChunkRules, most: int) -> None:
    limit = Limit(most, by_bytes)
    free = chunk(extracted, rules)
    fitting = [(one.start, one.end, one.indexed_text, one.section) for one in free if limit.admits(one.indexed_text)]
    held = [(one.start, one.end, one.indexed_text, one.section) for one in chunk(extracted, rules, limit=limit)]
    assert [one for one in held if one in fitting] == fitting


@pytest.mark.parametrize("most", [None, 160])
@settings(max_examples=150)
@given(st.lists(parts, min_size=1, max_size=40), st.integers(1, 40))
def test_no_grapheme_is_cut(most: int | None, found: list[str], times: int) -> None:
    extracted = one_block(("".join(found).strip() or "x") * times)
    limit = Limit(most, by_bytes) if most else None
    if any(
        len(run) > 10
        for run in "".join(c if unicodedata.category(c)[0] == "M" else " " for c in extracted.text).split()
    ):
        return  # heaped marks may be more than fits
    for one in chunk(extracted, ChunkRules(64, 16), limit=limit):
        assert not cuts_a_grapheme(extracted.text, one.start), ascii(extracted.text[one.start - 5 : one.start + 5])
        assert not cuts_a_grapheme(extracted.text, one.end), ascii(extracted.text[one.end - 5 : one.end + 5])


@pytest.mark.parametrize("cluster", [FAMILY, "👍🏽", "🇫🇷", "e\u0301", "नि", "漢", "\u1100\u1161\u11a8"], ids=ascii)
def test_a_limit_just_above_a_grapheme_leaves_it_whole(cluster: str) -> None:
    extracted = one_block(cluster * 400)
    chunks = chunk(extracted, ChunkRules(overlap=0), limit=Limit(by_bytes(cluster) + 1, by_bytes))
    assert [one.content for one in chunks] == [cluster] * 400


def test_a_grapheme_over_the_limit_is_cut() -> None:
    extracted = one_block("e" + "\u0301" * 500)
    chunks = chunk(extracted, ChunkRules(overlap=0), limit=Limit(32, by_bytes))
    assert "".join(one.content for one in chunks) == extracted.text
    assert len(chunks) <= 80


def test_a_limit_that_admits_nothing_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="not even admit a single character") as caught:
        chunk(one_block("text"), ChunkRules(), limit=Limit(0, by_bytes))
    assert caught.value.code == "embedder_limit"


def test_pieces_of_a_table_repeat_its_header() -> None:
    chunks = chunk(one_block(table(60), "table"), ChunkRules(), limit=Limit(200, by_bytes))
    assert all(one.content.startswith("| code | price |\n| --- | --- |\n| A-") for one in chunks)
    assert [row for one in chunks for row in one.content.splitlines()[2:]] == table(60).splitlines()[2:]


def test_pieces_of_a_paragraph_end_with_sentences() -> None:
    text = " ".join(f"Sentence number {at} is about the pump." for at in range(60))
    chunks = chunk(one_block(text), ChunkRules(), limit=Limit(200, by_bytes))
    assert len(chunks) > 60 * 37 / 200
    assert all(one.content.startswith("Sentence") and one.content.endswith("pump.") for one in chunks)


def test_pieces_keep_section_and_heading() -> None:
    blocks = (Block("heading", "Safety", 1), Block("paragraph", "The pump stops. " * 50))
    chunks = chunk(document(*blocks, title="Manual"), ChunkRules(), limit=Limit(200, by_bytes))
    assert len(chunks) > 4
    assert {one.section for one in chunks} == {("Safety",)}
    assert {one.context for one in chunks} == {"Manual › Safety"}
    assert chunks[0].content.startswith("Safety\n\nThe pump")


def test_a_long_header_leaves_the_limit_to_the_content() -> None:
    extracted = document(Block("heading", "漢" * 5_000, 1), Block("paragraph", "x" * 900), title="字" * 5_000)
    for one in chunk(extracted, ChunkRules(), limit=Limit(400, by_bytes)):
        assert one.context == "字字字字字字字字字… › 漢漢漢漢漢漢漢漢漢…"


def test_a_tokeniser_without_a_limit_changes_nothing() -> None:
    assert limit_of(use()) is None
    extracted = one_block("Some text. " * 500)
    assert chunk(extracted, ChunkRules(), limit=Limit(10**9, by_use)) == chunk(extracted, ChunkRules())


@pytest.mark.parametrize("name", ["one letter", "ideographs", "one line", "families", "lines", "table"])
def test_work_grows_with_the_text_only(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Characters that are handed to the estimate and to the tokeniser, for a text and for one eight times as long."""
    whole = DEGENERATE[name].blocks[0]
    spent: list[int] = []

    def count(text: str) -> int:
        spent[-1] += len(text)
        return len(text.encode())

    from pipelines import cut

    estimate = cut.estimate_tokens
    monkeypatch.setattr(cut, "estimate_tokens", lambda text: estimate(text) + 0 * count(text))
    for size in (SIZE // 2, SIZE * 4):
        spent.append(0)
        chunk(one_block((whole.text * 5)[:size], whole.kind), ChunkRules(), limit=Limit(200, count))
    assert spent[1] <= 10 * spent[0]


def test_an_edit_within_pieces_stays_local() -> None:
    rng = random.Random("limit")
    words = [f"w{at}" for at in range(200)]
    paragraphs = [" ".join(rng.choices(words, k=rng.randint(20, 90))) + "." for _ in range(80)]

    def hashes() -> set[bytes]:
        found = chunk(
            document(*[Block("paragraph", text) for text in paragraphs]), ChunkRules(), limit=Limit(300, by_bytes)
        )
        return {one.content_hash for one in found}

    before = hashes()
    paragraphs[40] = paragraphs[40].replace("w", "v", 1)
    assert 1 <= len(hashes() - before) <= 4
