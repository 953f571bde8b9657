"""An embedder that costs nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipelines.types import Vector


class EightDimensions:
    """An embedder that knows texts by their length."""

    model = "eight"
    dimensions = 8
    limit = None

    def __init__(self) -> None:
        self.texts = 0
        """How many texts it has embedded for documents."""

    def count_tokens(self, text: str) -> int:
        return len(text)

    def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        self.texts += len(texts)
        return [np.eye(8, dtype=np.float32)[len(text) % 8] for text in texts]

    def embed_query(self, text: str) -> Vector:
        return np.eye(8, dtype=np.float32)[len(text) % 8]
