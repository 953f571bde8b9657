"""Content-addressed embedding: a text that a model has seen is never embedded, nor paid, again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pipelines.embed.vectors import batches
from pipelines.types import Chunk, EmbeddedChunk, Vector


class VectorStore(Protocol):
    """Vectors kept by model and content hash (`Chunk.content_hash`: SHA-256 of the text embedded)."""

    def get(self, model: str, hashes: Sequence[bytes]) -> Mapping[bytes, Vector]:
        """Those vectors that are known, by hash."""

    def put(self, model: str, items: Mapping[bytes, Vector]) -> None:
        """Keep vectors for good; one that is known already may be left as it is."""


class PassageEmbedder(Protocol):
    """The part of an `Embedder` that documents need."""

    @property
    def model(self) -> str:
        """See `Embedder.model`."""

    def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        """See `Embedder.embed_documents`."""


class MemoryVectors:
    """A `VectorStore` in memory, for one run or a test."""

    def __init__(self) -> None:
        self._vectors: dict[tuple[str, bytes], Vector] = {}

    def get(self, model: str, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        """Those vectors that are known, by hash."""
        return {key: self._vectors[model, key] for key in hashes if (model, key) in self._vectors}

    def put(self, model: str, items: Mapping[bytes, Vector]) -> None:
        """Keep vectors as long as this object lives."""
        self._vectors.update({(model, key): vector for key, vector in items.items()})


def embed_chunks(
    chunks: Sequence[Chunk],
    embedder: PassageEmbedder,
    cache: VectorStore,
    *,
    progress: Callable[[int, int], None] | None = None,
    admit: Callable[[Sequence[str]], object] = lambda texts: None,
    batch_texts: int = 256,
    batch_tokens: int = 100_000,
) -> list[EmbeddedChunk]:
    """Give each chunk its vector, from the cache or else from the embedder.

    Each distinct missing text is embedded once. Batches of at most `batch_texts` texts and `batch_tokens`
    tokens are stored as they come, so that after a crash only the batch under way is paid twice.

    Args:
        progress: called with the chunks that have a vector, and all chunks; first before any embedding.
        admit: called with all texts that are missing, before the first is sent; what it raises ends the work.

    Returns:
        One a chunk, in the order of the chunks.

    Raises:
        GristmillError: what the embedder raises; batches before that are in the cache.
    """
    hashes = [chunk.content_hash for chunk in chunks]
    known = dict(cache.get(embedder.model, list(dict.fromkeys(hashes))))
    missing = {key: chunk for key, chunk in zip(hashes, chunks, strict=True) if key not in known}
    keys, texts = list(missing), [chunk.indexed_text for chunk in missing.values()]

    def report() -> None:
        if progress:
            progress(sum(key in known for key in hashes), len(hashes))

    report()
    admit(texts)
    for batch in batches(texts, batch_texts, batch_tokens):
        vectors = embedder.embed_documents([texts[index] for index in batch])
        fresh = dict(zip([keys[index] for index in batch], vectors, strict=True))
        cache.put(embedder.model, fresh)
        known.update(fresh)
        report()
    return [EmbeddedChunk(chunk, known[key], embedder.model) for chunk, key in zip(chunks, hashes, strict=True)]
