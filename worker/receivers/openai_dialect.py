"""OpenAI's dialect: the index's own embedding model behind `/v1/embeddings` and `/v1/models`.

A client that embeds here, e.g. n8n's Embeddings OpenAI node with another base URL, cannot disagree with the index:
whatever model it names, the vectors are those of the index's model, and the answer says which that is.

Models of the E5 kind embed passages and questions differently, which OpenAI's API cannot say. Texts are passages here,
whether one or many come at a time, unless the name of the model ends in `:query`. For models without that difference,
the default one among them, the two are the same.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse

from pipelines.embed import Embedder
from pipelines.search import check_model
from pipelines.tokens import estimate_tokens
from pipelines.types import Vector
from worker.receivers.auth import require
from worker.receivers.context import Context, Shared
from worker.receivers.dialect import DialectError, Failure, body_of, parsed, route_class

MOST_INPUTS = 2048
QUERY_SUFFIX = ":query"


def render(failure: Failure) -> Response:
    """An error in OpenAI's form: `{"error": {message, type, param, code}}`."""
    kind = "invalid_request_error" if failure.status < 500 else "server_error"
    message = f"{failure.message} ({failure.hint})" if failure.hint else failure.message
    content = {"error": {"message": message, "type": kind, "param": failure.param, "code": failure.code}}
    return JSONResponse(content, failure.status, failure.headers)


router = APIRouter(prefix="/v1", tags=["openai"], route_class=route_class(render))

_may_search = [Depends(require("search"))]
_EMBED_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["input"],
                    "properties": {
                        "input": {
                            "anyOf": [
                                {"type": "string", "minLength": 1},
                                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST_INPUTS},
                            ]
                        },
                        "model": {"type": "string", "description": "Any; with the suffix :query, texts are questions"},
                        "encoding_format": {"enum": ["float", "base64"], "default": "float"},
                        "dimensions": {"type": "integer", "description": "Only the index's own size"},
                    },
                },
                "example": {"model": "use-multilingual-v3", "input": ["the pump is serviced in May"]},
            }
        },
    }
}


@router.post(
    "/embeddings",
    dependencies=_may_search,
    summary="Embed texts with the model of the index",
    openapi_extra=_EMBED_BODY,
)
async def create_embeddings(context: Shared, body: Annotated[bytes, Depends(body_of)]) -> Response:
    """One vector a text, in order."""
    return await context.lanes.embedding.run(_embedded, context, body)


def _embedded(context: Context, body: bytes) -> Response:
    given = parsed(body, "invalid_json")
    if not isinstance(given, dict):
        raise _invalid("the body must be a JSON object", None)
    texts = _texts(given.get("input"))
    encoding = given.get("encoding_format")
    if encoding not in (None, "float", "base64"):
        raise _invalid("encoding_format must be float or base64", "encoding_format")
    model = given.get("model")
    if model is not None and not isinstance(model, str):
        raise _invalid("model must be a text", "model")
    embedder = _embedder(context)
    wanted = given.get("dimensions")
    if wanted is not None and (isinstance(wanted, bool) or wanted != embedder.dimensions):
        raise _invalid(
            f"the index is built with {embedder.model}, whose vectors have {embedder.dimensions} dimensions;"
            f" {str(wanted)[:40]} cannot be given",
            "dimensions",
            f"leave dimensions out, or set it to {embedder.dimensions}",
        )
    if (model or "").endswith(QUERY_SUFFIX):
        vectors = [embedder.embed_query(text) for text in texts]
    else:
        vectors = embedder.embed_documents(texts)
    tokens = sum(map(estimate_tokens, texts))
    return JSONResponse(
        {
            "object": "list",
            "model": embedder.model,
            "data": [
                {"object": "embedding", "index": index, "embedding": _encoded(vector, encoding)}
                for index, vector in enumerate(vectors)
            ],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    )


@router.get("/models", dependencies=_may_search, summary="The model of the index, for passages and for questions")
def list_models(context: Shared) -> dict[str, Any]:
    """Both names of the one model."""
    embedder = _embedder(context)
    return {"object": "list", "data": [_model(embedder.model), _model(embedder.model + QUERY_SUFFIX)]}


@router.get("/models/{model:path}", dependencies=_may_search, summary="One of these")
def retrieve_model(context: Shared, model: str) -> dict[str, Any]:
    """The model of this name, if it is the index's."""
    embedder = _embedder(context)
    if model.removesuffix(QUERY_SUFFIX) != embedder.model:
        raise DialectError(
            404,
            "model_not_found",
            f"the model {model[:100]!r} is not here; the index is built with {embedder.model}",
            param="model",
        )
    return _model(model)


def _embedder(context: Context) -> Embedder:
    embedder = context.embedder()
    with context.connection() as connection:
        check_model(connection, embedder)
    return embedder


def _texts(given: Any) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list):
        raise _invalid("input must be a text or an array of texts", "input")
    if any(isinstance(text, int | list) for text in texts):
        raise _invalid(
            "input holds tokens, whose meaning depends on a tokeniser that is not ours", "input", "send texts"
        )
    if not all(isinstance(text, str) for text in texts):
        raise _invalid("input must be a text or an array of texts", "input")
    if not 1 <= len(texts) <= MOST_INPUTS:
        raise _invalid(f"input has {len(texts):,} texts; it must have 1 to {MOST_INPUTS:,}", "input")
    for index, text in enumerate(texts):
        if not text.strip():
            raise _invalid(f"text {index} of input is empty", "input", "leave it out")
    return texts


def _encoded(vector: Vector, encoding: str | None) -> str | list[float]:
    if encoding == "base64":
        return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()
    return [float(value) for value in vector]


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "gristmill"}


def _invalid(message: str, param: str | None, hint: str = "") -> DialectError:
    return DialectError(400, "invalid_value", message, hint, param=param)
