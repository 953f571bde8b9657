"""An edit changes the chunks it touches: what would be embedded again, counted over random documents."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pipelines.chunk import ChunkRules, chunk
from pipelines.tokens import estimate_tokens
from pipelines.types import Block, Extracted

COMMON = """the of and to in is you that it he was for on are as with his they at be this have from or one had by
word but not what all were we when your can said there use an each which she do how their if will up other about"""
WORDS = COMMON.split()
RULES = ChunkRules()


@pytest.fixture(autouse=True)
def _no_language(monkeypatch: pytest.MonkeyPatch) -> None:
    """Detection moves no boundary and takes most of the time."""
    monkeypatch.setattr("pipelines.chunk.detect_language", lambda text, default: default)


def paragraph(rng: random.Random, least: int = 20, most: int = 120) -> str:
    wanted, tokens, sentences = rng.randint(least, most), 0, []
    while tokens < wanted:
        sentences.append(" ".join(rng.choices(WORDS, k=rng.randint(5, 9))).capitalize() + ".")
        tokens += estimate_tokens(sentences[-1])
    return " ".join(sentences)


def document(paragraphs: list[str]) -> Extracted:
    return Extracted("text/plain", None, tuple(Block("paragraph", text) for text in paragraphs))


def hashes(paragraphs: list[str]) -> set[bytes]:
    return {one.content_hash for one in chunk(document(paragraphs), RULES)}


def change_word(paragraphs: list[str], at: int, _: random.Random) -> None:
    found = paragraphs[at].split()
    found[len(found) // 2] = "changed"
    paragraphs[at] = " ".join(found)


def lengthen(paragraphs: list[str], at: int, rng: random.Random) -> None:
    paragraphs[at] += " " + paragraph(rng, 10, 60)


def replace(paragraphs: list[str], at: int, rng: random.Random) -> None:
    paragraphs[at] = paragraph(rng)


def insert(paragraphs: list[str], at: int, rng: random.Random) -> None:
    paragraphs.insert(at, paragraph(rng))


def delete(paragraphs: list[str], at: int, _: random.Random) -> None:
    del paragraphs[at]


@pytest.mark.parametrize(
    ("edit", "mean", "over_two"),
    [
        (change_word, 1.1, 0.03),
        (lengthen, 1.5, 0.05),
        (replace, 1.8, 0.2),
        (insert, 2.0, 0.2),
        (delete, 1.4, 0.06),
    ],
)
def test_an_edit_stays_local(
    edit: Callable[[list[str], int, random.Random], None], mean: float, over_two: float
) -> None:
    """In sections of 95 paragraphs (about 40 chunks) without a heading, one edit each: mean and share over two."""
    rng = random.Random(f"stability {edit.__name__}")
    changed: list[int] = []
    for _ in range(60):
        paragraphs = [paragraph(rng) for _ in range(95)]
        before = hashes(paragraphs)
        edit(paragraphs, rng.randrange(95), rng)
        changed.append(len(hashes(paragraphs) - before))
    assert sum(changed) / len(changed) <= mean
    assert sum(count > 2 for count in changed) / len(changed) <= over_two
    assert max(changed) <= 6


def test_an_edit_within_a_paragraph_without_end_stays_local() -> None:
    rng = random.Random("one long paragraph")
    changed = []
    for _ in range(20):
        sentences = [" ".join(rng.choices(WORDS, k=rng.randint(5, 20))).capitalize() + "." for _ in range(500)]
        before = hashes([" ".join(sentences)])
        sentences[rng.randrange(500)] = "A sentence of another length was put here in its place by somebody."
        changed.append(len(hashes([" ".join(sentences)]) - before))
    assert sum(changed) / len(changed) <= 2.5


def test_appending_leaves_the_beginning_alone() -> None:
    rng = random.Random("append")
    paragraphs = [paragraph(rng) for _ in range(95)]
    before = chunk(document(paragraphs), RULES)
    after = chunk(document([*paragraphs, paragraph(rng)]), RULES)
    assert [one.content for one in after[:30]] == [one.content for one in before[:30]]


def test_chunks_are_reasonably_full() -> None:
    rng = random.Random("fill")
    sizes = [
        one.tokens / RULES.tokens
        for _ in range(30)
        for one in chunk(document([paragraph(rng) for _ in range(95)]), RULES)
    ]
    assert 0.6 <= sum(sizes) / len(sizes) <= 0.8
    assert sum(size < 0.3 for size in sizes) / len(sizes) < 0.03


def test_a_short_tail_is_not_left_over() -> None:
    rng = random.Random("tail")
    for extra in range(5, 60, 5):
        paragraphs = [paragraph(rng, 40, 60) for _ in range(11)] + [paragraph(rng, extra, extra)]
        assert min(one.tokens for one in chunk(document(paragraphs), RULES)) >= 80
