"""Embedding through the content-addressed cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pipelines.embed.cache import MemoryVectors, embed_chunks
from pipelines.embed.vectors import batches, normalise
from pipelines.errors import RetryableError, UnavailableError
from pipelines.types import Chunk, Vector
from tests.fakes.openai_server import embed


def chunk(index: int, content: str, context: str | None = None) -> Chunk:
    return Chunk(index, content, context, (), None, 0, len(content), "english", 10)


class Counting:
    """An embedder that remembers what it was given, and fails from a call on."""

    dimensions = 32
    limit = None

    def __init__(self, model: str = "counting", fails_at: int | None = None) -> None:
        self.model = model
        self.calls: list[list[str]] = []
        self.fails_at = fails_at

    def count_tokens(self, text: str) -> int:
        return len(text)

    def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        self.calls.append(list(texts))
        if len(self.calls) == self.fails_at:
            raise UnavailableError("embedder_unreachable", "gone")
        return [embed(text, self.dimensions) for text in texts]

    def embed_query(self, text: str) -> Vector:
        return embed(text, self.dimensions)


def test_order_and_vectors() -> None:
    chunks = [chunk(n, f"text {n}", "Title" if n % 2 else None) for n in range(5)]
    done = embed_chunks(chunks, Counting(), MemoryVectors())
    assert [one.chunk for one in done] == chunks
    assert {one.model for one in done} == {"counting"}
    np.testing.assert_array_equal(done[0].vector, embed("text 0", 32))
    np.testing.assert_array_equal(done[1].vector, embed("Title\ntext 1", 32))


def test_a_text_is_embedded_once() -> None:
    embedder, cache = Counting(), MemoryVectors()
    embed_chunks([chunk(0, "a"), chunk(1, "b"), chunk(2, "a")], embedder, cache)
    assert embedder.calls == [["a", "b"]]
    embed_chunks([chunk(0, "c"), chunk(1, "a")], embedder, cache)
    assert embedder.calls == [["a", "b"], ["c"]]
    embed_chunks([chunk(0, "b")], embedder, cache)
    assert len(embedder.calls) == 2


def test_models_do_not_share() -> None:
    cache, other = MemoryVectors(), Counting("other")
    embed_chunks([chunk(0, "a")], Counting(), cache)
    embed_chunks([chunk(0, "a")], other, cache)
    assert other.calls == [["a"]]


def test_a_crash_keeps_the_batches_before_it() -> None:
    chunks = [chunk(n, f"text {n}") for n in range(7)]
    cache, failing = MemoryVectors(), Counting(fails_at=3)
    with pytest.raises(UnavailableError):
        embed_chunks(chunks, failing, cache, batch_texts=3)
    again = Counting()
    assert len(embed_chunks(chunks, again, cache, batch_texts=3)) == 7
    assert again.calls == [["text 6"]]


def test_progress() -> None:
    seen: list[tuple[int, int]] = []
    cache = MemoryVectors()
    embed_chunks([chunk(0, "a")], Counting(), cache)
    chunks = [chunk(n, text) for n, text in enumerate("abcbd")]
    embed_chunks(chunks, Counting(), cache, progress=lambda *now: seen.append(now), batch_texts=2)
    assert seen == [(1, 5), (4, 5), (5, 5)]


def test_nothing_to_do() -> None:
    embedder = Counting()
    assert embed_chunks([], embedder, MemoryVectors()) == []
    assert embedder.calls == []


def test_batches_cover_everything_in_order() -> None:
    texts = ["a" * n for n in (1, 5_000, 1, 1, 1, 4_000, 4_000)]
    ranges = list(batches(texts, 3, 1_000))
    assert [index for one in ranges for index in one] == list(range(7))
    assert [len(one) for one in ranges] == [1, 1, 3, 1, 1]
    assert list(batches([], 3, 1_000)) == []


@pytest.mark.parametrize("bad", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_normalise_refuses(bad: list[float]) -> None:
    with pytest.raises(RetryableError) as caught:
        normalise(np.array([[1.0, 0.0], bad], dtype=np.float32), "m")
    assert caught.value.code == "embedding_not_finite"


def test_normalise_takes_values_whose_squares_overflow_float32() -> None:
    (vector,) = normalise(np.array([[3e30, 4e30]], dtype=np.float32), "m")
    np.testing.assert_allclose(vector, [0.6, 0.8], rtol=1e-6)
    assert vector.dtype == np.float32
