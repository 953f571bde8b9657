"""Embedding by an OpenAI-compatible endpoint: OpenAI itself, or a server of one's own.

Nothing is retried here: the ledger keeps the document and comes back, when the endpoint asked for it. Each
answer is checked (count, order, dimensions, finite values) before a vector leaves this module.
"""

from __future__ import annotations

import json
import time
import unicodedata
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from functools import cached_property

import numpy as np
import openai
from numpy.typing import NDArray
from openai.types import CreateEmbeddingResponse

from pipelines.embed import EmbedderSpec
from pipelines.embed.vectors import batches, normalise, require_text
from pipelines.errors import (
    ConfigurationError,
    GristmillError,
    PermanentError,
    RetryableError,
    UnavailableError,
)
from pipelines.tokens import estimate_tokens
from pipelines.types import Vector

DEFAULT_MODEL = "text-embedding-3-small"
MOST_TEXTS, MOST_TOKENS = 2_048, 300_000  # OpenAI's limits for one request
LONGEST_WAIT = 3_600.0  # seconds; a header that asks for more is asked again after that, which harms nobody

_OWN_MODELS = ("text-embedding-3-small", "text-embedding-3-large", "text-embedding-ada-002")
_OWN_LIMIT = 8_191  # tokens; those models cut UTF-8 into tokens of a byte or more
_MARGIN, _AROUND = 1.5, 4  # how far the estimate may be off for a model nobody knows; tokens put around a text

_CHECK_ADDRESS = "check GRISTMILL_OPENAI_BASE_URL and GRISTMILL_OPENAI_MODEL"
_NEW_KEY = (
    "make the key valid again at the provider; or set another as GRISTMILL_OPENAI_API_KEY and restart gristmill up"
)
_CHECK_SERVER = "see whether it is up; documents wait and are finished when it is back"
_SLOW = (
    "see whether it is up; if it is slow, raise GRISTMILL_EMBED_TIMEOUT_SECONDS or lower GRISTMILL_EMBED_BATCH_TEXTS"
)
_NO_KEY = "none"  # servers of one's own often want no key, but the client insists on one
_TOO_LONG = ("context length", "maximum context", "too long", "too many tokens", "input length", "max_tokens")
_OURS = ("model", "dimensions", "encoding_format")  # parameters that no document has a part in
_SHOWN = 200  # characters of a foreign message that are passed on


class OpenAIEmbedder:
    """A model behind `POST /v1/embeddings`.

    Args:
        spec: `model`, `base_url`, `api_key`, `dimensions` and the limits of a request.

    Raises:
        ConfigurationError: neither a key nor a base URL is set.
    """

    def __init__(self, spec: EmbedderSpec) -> None:
        if not spec.api_key and not spec.base_url:
            raise ConfigurationError(
                "embedder_key_missing",
                "the embedder openai has neither a key nor an address",
                "set GRISTMILL_OPENAI_API_KEY, or GRISTMILL_OPENAI_BASE_URL for a server of your own",
            )
        self._spec = spec
        self._name = spec.model or DEFAULT_MODEL
        self._where = spec.base_url or "OpenAI"
        self.served: str | None = None
        """Name under which the endpoint gave the last vectors; None before that, or where it tells none."""

    @property
    def model(self) -> str:
        """`openai:<model>`, with `@<dimensions>` where a vector size was asked for."""
        size = f"@{self._spec.dimensions}" if self._spec.dimensions else ""
        return f"openai:{self._name}{size}"

    @cached_property
    def dimensions(self) -> int:
        """The vector size asked for, else that of one probe, asked once on first use."""
        return self._spec.dimensions or int(self._ask(["dimensions"]).shape[1])

    @property
    def limit(self) -> int | None:
        """That of the spec, else that of OpenAI's own models, else None: the protocol has no way to ask."""
        own = self._name in _OWN_MODELS or not self._spec.base_url
        return self._spec.max_tokens or (_OWN_LIMIT if own else None)

    def count_tokens(self, text: str) -> int:
        """See `Embedder.count_tokens`: for OpenAI's models the bytes, an upper bound; for others an estimate.

        The estimate is half as much again as `estimate_tokens`, which can be too low for what is no language; then the
        endpoint refuses the text.
        """
        if self._name in _OWN_MODELS or not self._spec.base_url:
            return len(text.encode())
        longer = max(text, unicodedata.normalize("NFKC", text), key=len)  # the form that most models take
        return min(len(longer.encode()), int(estimate_tokens(longer) * _MARGIN)) + _AROUND

    def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        """See `Embedder.embed_documents`. Texts are sent in as few requests as the limits allow."""
        require_text(texts)
        most_texts = min(self._spec.batch_texts, MOST_TEXTS)
        most_tokens = min(self._spec.batch_tokens, MOST_TOKENS)
        expected = self.__dict__.get("dimensions", self._spec.dimensions)
        self.served = None
        vectors: list[Vector] = []
        for batch in batches(texts, most_texts, most_tokens):
            matrix = self._embed([texts[index] for index in batch])
            expected = expected or matrix.shape[1]
            self._check_dimensions(matrix.shape[1], expected)
            vectors += normalise(matrix, self.model)
        return vectors

    def embed_query(self, text: str) -> Vector:
        """See `Embedder.embed_query`; `dimensions` is learnt from the first."""
        vector = self.embed_documents([text])[0]
        self.__dict__.setdefault("dimensions", len(vector))
        return vector

    def warm(self) -> None:
        """Make a client once, and close it; nothing is sent."""
        with self._open() as client:
            assert client.embeddings

    @cached_property
    def _client(self) -> openai.OpenAI:
        return self._open()

    def _open(self) -> openai.OpenAI:
        return openai.OpenAI(
            api_key=self._spec.api_key or _NO_KEY,
            base_url=self._spec.base_url,
            timeout=self._spec.timeout,
            max_retries=0,
        )

    def _check_dimensions(self, found: int, expected: int) -> None:
        if found != expected:
            raise ConfigurationError(
                "embedding_dimensions",
                f"{self._where} gave vectors of {found} dimensions for {self._name} instead of {expected}",
                "set GRISTMILL_EMBEDDING_DIMENSIONS to a size that the model can give, or unset it",
            )

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Vectors of one batch, shape `(texts, dimensions)`; one that is refused is halved."""
        try:
            return self._ask(texts)
        except PermanentError:
            if len(texts) == 1:
                raise
        middle = len(texts) // 2
        return np.concatenate([self._embed(texts[:middle]), self._embed(texts[middle:])])

    def _ask(self, texts: list[str]) -> NDArray[np.float32]:
        """One request."""
        dimensions = self._spec.dimensions or openai.omit
        try:
            answer = self._client.embeddings.create(model=self._name, input=texts, dimensions=dimensions)
        except openai.APIStatusError as error:
            raise self._refused(error, texts) from error
        except openai.APITimeoutError as error:
            cause = f"{self._where} did not answer within {self._spec.timeout:g} s"
            raise UnavailableError("embedder_timeout", cause, _SLOW) from error
        except openai.APIConnectionError as error:
            refused = type(error.__cause__).__name__ == "ConnectError"  # httpx's, or that of the client's own copy
            code = "embedder_unreachable" if refused else "embedder_broken_answer"
            cause = f"{self._where} {'cannot be reached' if refused else 'broke off'}: {error.__cause__ or error}"
            raise UnavailableError(code, self._clean(cause), _CHECK_SERVER) from error
        except (json.JSONDecodeError, AttributeError) as error:  # AttributeError: the client met HTML
            cause = f"the answer of {self._where} is no JSON, or was cut short"
            raise UnavailableError("embedder_broken_answer", cause, _CHECK_ADDRESS) from error
        except (openai.APIError, ValueError) as error:  # ValueError: no vectors, or no base64
            raise self._useless("is not what the protocol demands") from error
        self._check_name(answer.model)
        return self._matrix(answer, len(texts))

    def _check_name(self, name: object) -> None:
        """Refuse vectors of two models in one answer; whether it is the right one, the index knows."""
        if not isinstance(name, str) or not name.strip():
            return
        self.served = self.served or plain_name(name)
        if plain_name(name) != self.served:
            cause = f"{self._where} answers as {self._clean(name)} for {self._name}, and as {self.served}"
            raise ConfigurationError("embedder_other_model", cause, _CHECK_ADDRESS)

    def _matrix(self, answer: CreateEmbeddingResponse, texts: int) -> NDArray[np.float32]:
        """The vectors in the order of the texts; the client has checked no type."""
        rows = {item.index: item.embedding for item in answer.data}
        if len(answer.data) != texts or set(rows) != set(range(texts)):
            raise self._useless(f"has {len(answer.data)} vectors for {texts} texts, or misnumbers them")
        try:
            matrix = np.array([rows[index] for index in range(texts)], dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise self._useless("has vectors of different sizes, or of no numbers") from error
        if matrix.ndim != 2 or not matrix.size:
            raise self._useless("has empty vectors")
        return matrix

    def _useless(self, why: str) -> RetryableError:
        """For an answer that came through whole: it may be this document's fault, so attempts are counted."""
        return RetryableError("embedder_bad_answer", f"the answer of {self._where} {why}", _CHECK_ADDRESS)

    def _refused(self, error: openai.APIStatusError, texts: list[str]) -> GristmillError:
        """The error for an answer that is not 2xx."""
        status, said = error.status_code, self._clean(error.message)
        wait = retry_after(error.response.headers.get("retry-after-ms"), error.response.headers.get("retry-after"))
        if status in (401, 403):
            cause = f"{self._where} refused the key (HTTP {status})"
            code = "embedder_unauthorised" if status == 401 else "embedder_forbidden"
            return UnavailableError(code, cause, _NEW_KEY)
        if status == 429 and "insufficient_quota" in (error.code, error.type):
            cause = f"the account at {self._where} has no credit left (HTTP 429, insufficient_quota)"
            return UnavailableError("quota_exhausted", cause, "top it up; documents wait", retry_after=wait)
        # OpenAI says 429 as well of a request that is over the tokens of a whole minute.
        too_large = status == 413 or (status == 429 and "too large" in said.lower())
        if status == 429 and not too_large:
            cause = f"{self._where} asks to slow down (HTTP 429)"
            return UnavailableError("rate_limited", cause, "nothing to do: documents wait", retry_after=wait)
        if status in (408, 409, 425) or status >= 500:
            cause = f"{self._where} failed (HTTP {status}): {said}"
            code = "embedder_overloaded" if status == 503 else "embedder_failed"
            return UnavailableError(code, cause, _CHECK_SERVER, retry_after=wait)
        longest = max(texts, key=len)
        shown = f"{longest[:60]!r}… ({len(longest):,} characters)"
        if too_large or error.code == "context_length_exceeded" or _mentions(said, _TOO_LONG):
            cause = f"{self._where} finds a text too long for {self._name}: {shown}"
            if self.limit is None:
                remedy = f"set GRISTMILL_EMBED_MAX_TOKENS to the most tokens that {self._name} takes, then retry"
            else:
                remedy = f"lower GRISTMILL_EMBED_MAX_TOKENS, {self.limit:,} now, then retry"
            return PermanentError("text_too_long", cause, remedy)
        if status in (404, 405) or error.param in _OURS or _mentions(said, ("model", "dimensions")):
            cause = f"{self._where} cannot serve {self.model} (HTTP {status}): {said}"
            return ConfigurationError("embedder_not_served", cause, _CHECK_ADDRESS)
        cause = f"{self._where} refused a text (HTTP {status}): {said}; it was {shown}"
        return PermanentError("embedder_refused", cause)

    def _clean(self, message: str) -> str:
        """A foreign message, shortened and without the key, should it be quoted."""
        key = self._spec.api_key
        return (message.replace(key, "…") if key else message)[:_SHOWN]


def _mentions(message: str, words: Sequence[str]) -> bool:
    return any(word in message.lower() for word in words)


def retry_after(milliseconds: str | None, header: str | None) -> float | None:
    """Seconds to wait as told by the headers `retry-after-ms` and `Retry-After` (RFC 9110: seconds, date).

    Returns:
        From 0 to `LONGEST_WAIT`; None where neither header is there and can be read.
    """
    for value, unit in ((milliseconds, 1_000.0), (header, 1.0)):
        try:
            seconds = float(value or "")
        except ValueError:
            continue
        if np.isfinite(seconds):
            return min(max(0.0, seconds / unit), LONGEST_WAIT)
    try:
        moment = parsedate_to_datetime(header or "")
    except ValueError:
        return None
    return min(max(0.0, moment.timestamp() - time.time()), LONGEST_WAIT)


def plain_name(model: str) -> str:
    """What a model is called without the path and the tag that servers and gateways put around the name."""
    return model.strip().lower().removesuffix(":latest").rstrip("/").rsplit("/", 1)[-1]


def open_embedder(spec: EmbedderSpec) -> OpenAIEmbedder:
    """The embedder; raises ConfigurationError where neither a key nor a base URL is set."""
    return OpenAIEmbedder(spec)


def warm(spec: EmbedderSpec) -> None:
    """See `pipelines.embed.warm`: the client's many modules are loaded, which it leaves to the first who needs them."""
    open_embedder(spec).warm()
