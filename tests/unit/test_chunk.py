"""Chunking: what a chunk holds, whatever the document."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.chunk import ChunkRules, chunk
from pipelines.context import context_header
from pipelines.errors import ConfigurationError
from pipelines.store import _columns
from pipelines.tokens import estimate_tokens
from pipelines.types import BLOCK_SEPARATOR, Block, BlockKind, Chunk, Extracted

SENTENCES = "The pump must be switched off before the cover is opened. Then wait until the light goes out. "
FAMILY = "👨‍👩‍👧‍👦"


def document(*blocks: Block, title: str | None = None) -> Extracted:
    return Extracted("text/plain", title, blocks)


def heading(text: str, level: int, page: int | None = None) -> Block:
    return Block("heading", text, level, page)


def paragraph(text: str, page: int | None = None) -> Block:
    return Block("paragraph", text, page=page)


def contents(chunks: list[Chunk]) -> list[str]:
    return [one.content for one in chunks]


def test_small_document_is_one_chunk() -> None:
    (only,) = chunk(document(paragraph("Hello."), paragraph("World.")), ChunkRules())
    assert only.content == "Hello.\n\nWorld."
    assert (only.index, only.start, only.end, only.context, only.section) == (0, 0, 14, None, ())


def test_empty_document() -> None:
    assert chunk(document(), ChunkRules()) == []


def test_headings_start_chunks_and_give_the_section_path() -> None:
    chunks = chunk(
        document(
            heading("Manual", 1), paragraph("Intro."),
            heading("Safety", 2), paragraph("Mind the pump."),
            heading("Electric", 3), paragraph("Mind the current."),
            heading("Repair", 2), paragraph("Call us."),
        ),
        ChunkRules(),
    )  # fmt: skip
    assert [(one.content.split("\n\n")[0], one.section) for one in chunks] == [
        ("Manual", ("Manual",)),
        ("Safety", ("Manual", "Safety")),
        ("Electric", ("Manual", "Safety", "Electric")),
        ("Repair", ("Manual", "Repair")),
    ]
    assert [one.index for one in chunks] == [0, 1, 2, 3]


def test_a_heading_without_a_body_joins_the_next() -> None:
    chunks = chunk(document(heading("A", 1), heading("B", 2), paragraph("Text.")), ChunkRules())
    assert contents(chunks) == ["A\n\nB\n\nText."]
    assert chunks[0].section == ("A", "B")


def test_a_heading_at_the_end_joins_the_last_chunk() -> None:
    chunks = chunk(document(heading("A", 1), paragraph("Text."), heading("Annex", 1)), ChunkRules())
    assert contents(chunks) == ["A\n\nText.\n\nAnnex"]
    assert chunks[0].section == ("A",)


@pytest.mark.parametrize("words", [5, 40, 60, 61, 62, 63, 64, 200])
@pytest.mark.parametrize("kind", ["paragraph", "table", "code"])
def test_a_heading_is_never_alone(words: int, kind: BlockKind) -> None:
    body = Block(kind, "\n".join(["| some words | here |"] * (words // 5)))
    for chunks in (
        chunk(document(heading("Heading", 1), body), ChunkRules(64, 0)),
        chunk(document(paragraph("x"), heading("One", 1), body, heading("Heading", 1)), ChunkRules(64, 0)),
    ):
        assert "Heading" not in contents(chunks)
        assert max(estimate_tokens(one.content) for one in chunks) <= 64


def test_page_is_that_of_the_first_block_and_a_page_break_is_no_boundary() -> None:
    chunks = chunk(
        document(paragraph("On one.", 1), paragraph("On two.", 2), heading("Next", 1, 2), paragraph("On three.", 3)),
        ChunkRules(),
    )
    assert [(one.content, one.page) for one in chunks] == [
        ("On one.\n\nOn two.", 1),
        ("Next\n\nOn three.", 2),
    ]


@pytest.mark.parametrize(
    ("pages", "found"),
    [((1, 1), (1, 1)), ((3, 4), (3, 4)), ((3, None), (3, 3)), ((None, 2), (None, None)), ((4, 3), (4, 4))],
)
def test_page_end(pages: tuple[int | None, int | None], found: tuple[int | None, int | None]) -> None:
    (one,) = chunk(document(paragraph("On one.", pages[0]), paragraph("On two.", pages[1])), ChunkRules())
    assert (one.page, one.page_end) == found


@pytest.mark.parametrize(("page_end", "kept"), [(4, 4), (3, None), (None, None)])
def test_page_end_is_kept_where_it_differs(page_end: int | None, kept: int | None) -> None:
    one = Chunk(0, "text", None, (), 3, 0, 4, "english", 1, page_end)
    facts = _columns(one, {"title": "Manual"})["metadata"].obj
    assert (facts["page"], facts.get("page_end")) == (3, kept)


def test_context_header_and_tokens() -> None:
    blocks = (heading("Manual", 1), paragraph("Intro."), heading("Safety", 2), paragraph("Mind the pump."))
    first, second = chunk(document(*blocks, title="Manual"), ChunkRules(), title="manual.pdf")
    assert (first.context, second.context) == ("Manual", "Manual › Safety")
    assert second.tokens == estimate_tokens("Manual › Safety\nSafety\n\nMind the pump.")
    assert chunk(document(*blocks), ChunkRules(), title="m.pdf")[1].context == "m.pdf › Manual › Safety"


@pytest.mark.parametrize(
    ("title", "section", "header"),
    [
        (None, [], None),
        ("  ", [" "], None),
        ("Guide", [], "Guide"),
        ("Guide", ["GUIDE", "Start"], "Guide › Start"),
        ("Guide", ["Start", "Guide"], "Guide › Start › Guide"),
        (None, ["A\n b", "C"], "A b › C"),
        ("x" * 100, [], "x" * 79 + "…"),
        ("x" * 5_000, [], "x" * 79 + "…"),
        ("Guide", ["漢" * 90] * 2 + ["字" * 90, "A"], f"Guide › {'漢' * 79}… › {'字' * 79}… › A"),
        ("Guide", ["漢" * 90, "字" * 90, "仮" * 90], f"Guide › {'漢' * 39}… › {'字' * 39}… › {'仮' * 39}…"),
        ("A" * 77 + FAMILY + "B", [], "A" * 77 + "…"),
    ],
)
def test_context_header_forms(title: str | None, section: list[str], header: str | None) -> None:
    assert context_header(title, section) == header


def test_tables_and_code_stay_whole_where_they_fit() -> None:
    table = "| code | price |\n|---|---|\n" + "\n".join(f"| A-{n} | {n}.00 |" for n in range(10))
    chunks = chunk(
        document(
            paragraph(SENTENCES * 6), Block("table", table), paragraph(SENTENCES * 6), Block("code", "x = 1\n" * 30)
        ),
        ChunkRules(),
    )
    assert sum(table in content for content in contents(chunks)) == 1
    assert sum("x = 1\n" * 29 in content for content in contents(chunks)) == 1


@pytest.mark.parametrize("rule", ["", "|---|:--:|\n"])
def test_a_long_table_is_cut_between_rows_and_repeats_its_header(rule: str) -> None:
    header = f"| code | price |\n{rule}"
    rows = [f"| A-{n} | {n}.00 EUR |" for n in range(100)]
    document_ = document(Block("table", header + "\n".join(rows)))
    chunks = chunk(document_, ChunkRules())
    assert len(chunks) > 3
    assert all(one.content.startswith(header) for one in chunks)
    assert "\n".join(one.content.removeprefix(header) for one in chunks) == "\n".join(rows)
    assert all(estimate_tokens(one.content) <= 256 for one in chunks)
    assert "".join(document_.text[one.start : one.end] for one in chunks) == document_.text


def test_a_wide_header_is_repeated_too() -> None:
    header = f"| {' | '.join(f'Measured value {n}' for n in range(20))} |\n{'| --- ' * 20}|\n"
    rows = [f"| {' | '.join(str(n + m) for m in range(20))} |" for n in range(30)]
    chunks = chunk(document(Block("table", header + "\n".join(rows))), ChunkRules())
    assert len(chunks) > 3
    assert chunks[0].content.startswith(header.splitlines()[0])
    assert all(one.content.startswith("| Measured va… | Measured va… |") for one in chunks[1:])
    assert all(estimate_tokens(one.content) <= 256 for one in chunks)
    assert [row for one in chunks for row in one.content.splitlines() if row in rows] == rows


def test_a_heading_without_end_is_cut_short_in_the_path() -> None:
    (*_, last) = chunk(document(heading("word " * 9_000, 1), paragraph("Text.")), ChunkRules())
    assert [len(part) for part in last.section] == [200]


@pytest.mark.parametrize(("tokens", "overlap"), [(0, 0), (256, 65), (64, 64), (64, 100), (256, -1)])
def test_sizes_that_make_no_sense_are_refused(tokens: int, overlap: int) -> None:
    with pytest.raises(ConfigurationError, match=f"chunks of {tokens} tokens cannot overlap by {overlap}"):
        ChunkRules(tokens, overlap)


def test_code_is_cut_between_lines_and_keeps_its_indentation() -> None:
    code = "\n".join(f"def function_{n}(argument):\n    return argument * {n}\n" for n in range(40))
    chunks = chunk(document(Block("code", code)), ChunkRules())
    assert len(chunks) > 2
    lines = set(code.splitlines())
    assert all(line in lines for one in chunks for line in one.content.splitlines())


def test_a_long_paragraph_is_cut_between_sentences_with_overlap() -> None:
    text = " ".join(f"Sentence number {n} says something about the pump and its cover." for n in range(80))
    extracted = document(paragraph(text))
    chunks = chunk(extracted, ChunkRules())
    assert len(chunks) > 3
    for one in chunks:
        assert one.content == extracted.text[one.start : one.end].rstrip()
        assert one.content.startswith("Sentence number")
        assert one.content.endswith("cover.")
    for before, after in pairwise(chunks):
        assert after.start < before.end, "no overlap"
        assert 0 < estimate_tokens(extracted.text[after.start : before.end]) <= 32


def test_no_overlap_between_whole_paragraphs() -> None:
    chunks = chunk(document(*[paragraph(SENTENCES * 3 + str(n)) for n in range(20)]), ChunkRules())
    assert len(chunks) > 5
    assert all(after.start == before.end + len(BLOCK_SEPARATOR) for before, after in pairwise(chunks))


@pytest.mark.parametrize("overlap", [0, 32])
def test_an_endless_word_is_cut(overlap: int) -> None:
    extracted = document(paragraph("A" * 200_000))
    chunks = chunk(extracted, ChunkRules(overlap=overlap))
    assert (chunks[0].start, chunks[-1].end) == (0, 200_000)
    assert all(0 <= before.end - after.start <= overlap * 3 for before, after in pairwise(chunks))
    assert all(estimate_tokens(one.content) <= 256 for one in chunks)


@pytest.mark.parametrize(
    "cluster", [FAMILY, "👍🏽", "🇫🇷", "e\u0301", "नि", "각", "漢", "\u1100\u1161\u11a8"], ids=ascii
)
def test_graphemes_are_never_cut(cluster: str) -> None:
    count = 3_000
    chunks = chunk(document(paragraph(cluster * count)), ChunkRules(overlap=0))
    assert len(chunks) > 3
    assert sum(one.content.count(cluster) for one in chunks) == count
    assert all(len(one.content) % len(cluster) == 0 for one in chunks)


def test_language_of_each_chunk() -> None:
    french = "Le locataire peut résilier le contrat à tout moment, par lettre recommandée avec avis de réception. "
    chunks = chunk(
        document(
            heading("A", 1), paragraph(SENTENCES * 2), heading("B", 1), paragraph(french * 2), heading("C", 1),
            paragraph(SENTENCES * 12), heading("D", 1), paragraph("E-4012"),
        ),
        ChunkRules(default_language="simple"),
    )  # fmt: skip
    assert chunks[0].language == "english"
    assert chunks[1].language == "french"
    assert chunks[-1].language == "english", "too short: that of the document"
    (only,) = chunk(document(paragraph("E-4012")), ChunkRules(default_language="simple"))
    assert only.language == "simple"


letters = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=40)
words = st.lists(
    st.one_of(letters, st.sampled_from(["pump", "Fin.", "漢字", FAMILY, "\n", "| a | b |\n", " "])), max_size=60
)
kinds: st.SearchStrategy[BlockKind] = st.sampled_from(["heading", "paragraph", "list", "table", "code"])
blocks = st.builds(
    lambda kind, parts, level, page, times: Block(
        kind, (" ".join(parts) or "x") * times, level if kind == "heading" else 0, page
    ),
    kinds,
    words.filter(lambda parts: bool("".join(parts).strip()) or not parts),
    st.integers(1, 6),
    st.none() | st.integers(1, 9),
    st.integers(1, 12),
)
documents = st.lists(blocks, max_size=8).map(lambda found: document(*found))


@settings(max_examples=150, deadline=None)
@given(documents, st.integers(32, 300))
def test_spans_cover_the_text_once(extracted: Extracted, budget: int) -> None:
    chunks = chunk(extracted, ChunkRules(budget, 0))
    text, position = extracted.text, 0
    for one in chunks:
        assert one.start >= position
        assert text[position : one.start].strip() == ""
        assert one.content.strip()
        assert one.content.endswith(text[one.start : one.end].strip())
        position = one.end
    assert text[position:].strip() == ""


@settings(max_examples=150, deadline=None)
@given(documents, st.integers(32, 300), st.integers(0, 4))
def test_no_content_is_over_the_budget(extracted: Extracted, budget: int, share: int) -> None:
    for one in chunk(extracted, ChunkRules(budget, budget * share // 16)):
        fits = estimate_tokens(one.content) <= budget
        assert fits or all(unicodedata.combining(char) for char in one.content[1:])  # a single huge grapheme


@settings(max_examples=50, deadline=None)
@given(documents)
def test_same_document_same_chunks(extracted: Extracted) -> None:
    assert chunk(extracted, ChunkRules()) == chunk(extracted, ChunkRules())
