"""What all embedders share: which texts go in, how vectors come out, how work is cut into batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import ConfigurationError, PermanentError, RetryableError
from pipelines.tokens import estimate_tokens
from pipelines.types import Vector


def require_text(texts: Sequence[str]) -> None:
    """Refuse blank texts, which have no meaning to embed and which OpenAI answers with an error.

    Raises:
        PermanentError: a text is empty or blank.
    """
    for index, text in enumerate(texts):
        if not text.strip():
            raise PermanentError("blank_text", f"text {index + 1} of {len(texts)} to embed is blank")


def require_dimensions(model: str, own: int, wanted: int | None) -> None:
    """Refuse a vector size that a model of fixed size cannot give.

    Raises:
        ConfigurationError: another size than its own is wanted.
    """
    if wanted is not None and wanted != own:
        raise ConfigurationError(
            "embedding_dimensions",
            f"{model} makes vectors of {own} dimensions, not of {wanted}",
            f"unset GRISTMILL_EMBEDDING_DIMENSIONS or set it to {own}",
        )


def normalise(matrix: NDArray[np.float32], model: str) -> list[Vector]:
    """Rows of a matrix of shape `(texts, dimensions)` scaled to length 1, as float32.

    Raises:
        RetryableError: a row holds a value that is not finite, or is all zeros.
    """
    lengths = np.linalg.norm(matrix.astype(np.float64), axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise RetryableError(
            "embedding_not_finite",
            f"{model} gave a vector that is zero or has values that are not numbers",
            "if it goes on, the model or the server that runs it is broken",
        )
    return list((matrix / lengths).astype(np.float32))


def batches(texts: Sequence[str], most_texts: int, most_tokens: int) -> Iterator[range]:
    """Index ranges that cover the texts in order, each within both limits; a longer text goes by itself."""
    first, tokens = 0, 0
    for index, text in enumerate(texts):
        size = estimate_tokens(text)
        if index > first and (index - first >= most_texts or tokens + size > most_tokens):
            yield range(first, index)
            first, tokens = index, 0
        tokens += size
    if first < len(texts):
        yield range(first, len(texts))
