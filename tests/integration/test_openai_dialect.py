"""OpenAI's dialect as its own client speaks it, over a real socket."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from fastapi import FastAPI
from psycopg import Connection

from pipelines.embed import Embedder
from pipelines.tokens import estimate_tokens
from pipelines.types import Vector
from tests.fakes.http_service import client_of
from worker.embedded import Services
from worker.receivers.app import create_http_app
from worker.receivers.auth import create_key
from worker.receivers.context import Context
from worker.settings import Settings

TEXTS = ["the pump is blocked", "la facture est payée", "E-4012"]


class TwoSided:
    """A model of 8 dimensions that embeds passages and questions differently, with values that no decimal holds."""

    model = "two-sided"
    dimensions = 8

    def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        return [self._vector(f"passage: {text}") for text in texts]

    def embed_query(self, text: str) -> Vector:
        return self._vector(f"query: {text}")

    def _vector(self, text: str) -> Vector:
        values = np.random.default_rng(list(text.encode())).standard_normal(8).astype(np.float32)
        return np.asarray(values / np.linalg.norm(values), dtype=np.float32)


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> Embedder:
    found = TwoSided()
    monkeypatch.setattr(Context, "embedder", lambda _self: found)
    return found


@pytest.fixture
def app(tmp_path: Path, services: Services, dsn: str) -> FastAPI:
    return create_http_app(Settings(home=tmp_path / "home"), Services(dsn, services.broker_url))


@pytest.fixture
def http(app: FastAPI, embedder: Embedder) -> Iterator[httpx.Client]:
    with client_of(app) as client:
        yield client


@pytest.fixture
def client(http: httpx.Client) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{http.base_url}/v1", api_key="any", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("encoding", ["base64", "float", None])
def test_vectors_are_the_embedders_bit_for_bit(client: openai.OpenAI, embedder: Embedder, encoding: Any) -> None:
    more = {"encoding_format": encoding} if encoding else {}
    answer = client.embeddings.create(model="text-embedding-3-small", input=TEXTS, **more)
    assert answer.model == "two-sided" and [item.index for item in answer.data] == [0, 1, 2]
    for item, expected in zip(answer.data, embedder.embed_documents(TEXTS), strict=True):
        given: Any = item.embedding
        if encoding == "base64":
            found = np.frombuffer(base64.b64decode(given), dtype="<f4")
        else:
            found = np.asarray(given, dtype=np.float32)
        assert found.tobytes() == expected.tobytes()
    tokens = sum(map(estimate_tokens, TEXTS))
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (tokens, tokens)


def test_the_request_of_n8ns_node(http: httpx.Client, embedder: Embedder) -> None:
    body = {"model": "text-embedding-3-small", "input": "E-4012", "encoding_format": "base64"}
    (item,) = http.post("/v1/embeddings", json=body).json()["data"]
    assert base64.b64decode(item["embedding"]) == embedder.embed_documents(["E-4012"])[0].tobytes()


def test_one_text_is_a_passage_unless_the_model_says_query(client: openai.OpenAI, embedder: Embedder) -> None:
    for name, expected in (
        ("two-sided", embedder.embed_documents(["pump"])[0]),
        ("two-sided:query", embedder.embed_query("pump")),
    ):
        (item,) = client.embeddings.create(model=name, input="pump").data
        assert np.asarray(item.embedding, dtype=np.float32).tobytes() == expected.tobytes()


def test_the_indexs_own_size_may_be_named_and_no_other(client: openai.OpenAI) -> None:
    assert len(client.embeddings.create(model="m", input="x", dimensions=8).data[0].embedding) == 8
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="m", input="x", dimensions=1536)
    assert caught.value.param == "dimensions" and "8 dimensions; 1536" in str(caught.value)


def test_as_many_texts_as_openai_takes(http: httpx.Client) -> None:
    assert len(http.post("/v1/embeddings", json={"input": ["x"] * 2048}).json()["data"]) == 2048


@pytest.mark.parametrize(
    ("body", "param", "told"),
    [
        ({}, "input", "text or an array"),
        ({"input": ""}, "input", "empty"),
        ({"input": ["x", "  "]}, "input", "text 1"),
        ({"input": []}, "input", "1 to 2,048"),
        ({"input": ["x"] * 2049}, "input", "2,049 texts"),
        ({"input": [1, 2, 3]}, "input", "tokens"),
        ({"input": [[1, 2], [3]]}, "input", "tokens"),
        ({"input": [None]}, "input", "text or an array"),
        ({"input": {"a": "b"}}, "input", "text or an array"),
        ({"input": "x", "encoding_format": "hex"}, "encoding_format", "base64"),
        ({"input": "x", "encoding_format": []}, "encoding_format", "base64"),
        ({"input": "x", "dimensions": "8"}, "dimensions", "8 dimensions"),
        ({"input": "x", "dimensions": True}, "dimensions", "8 dimensions"),
        ({"input": "x", "model": 5}, "model", "text"),
        (["x"], None, "JSON object"),
    ],
)
def test_what_cannot_be_embedded_is_a_400_in_openais_form(
    http: httpx.Client, body: Any, param: str | None, told: str
) -> None:
    answer = http.post("/v1/embeddings", json=body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == ("invalid_request_error", param) and told in error["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"input": NaN}', b"[" * 100_000])
def test_a_body_that_is_not_json_is_a_400(http: httpx.Client, body: bytes) -> None:
    answer = http.post("/v1/embeddings", content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


def test_lone_surrogates_are_embedded_as_something(http: httpx.Client) -> None:
    assert http.post("/v1/embeddings", content=b'{"input": "a \\ud83d b\\u0000"}').status_code == 200


def test_models_are_the_indexs_own(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["two-sided", "two-sided:query"]
    assert client.models.retrieve("two-sided").owned_by == "gristmill"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("text-embedding-3-small")
    assert caught.value.code == "model_not_found" and "two-sided" in str(caught.value)


def test_an_index_of_another_model_is_not_served(http: httpx.Client, database: Connection[Any]) -> None:
    database.execute("insert into index_models (model, dimensions) values ('other', 8)")
    answer = http.post("/v1/embeddings", json={"input": "x"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (503, "model_differs", "server_error")
    assert "built with other" in error["message"] and "GRISTMILL_EMBEDDER" in error["message"]


def test_keys_are_openais(
    tmp_path: Path, services: Services, dsn: str, database: Connection[Any], embedder: Embedder
) -> None:
    key = create_key(database, "n8n", ["search"])
    app = create_http_app(Settings(home=tmp_path / "home", require_key="always"), Services(dsn, services.broker_url))
    with client_of(app) as http:
        url = f"{http.base_url}/v1"
        with openai.OpenAI(base_url=url, api_key=key, max_retries=0) as client:
            assert len(client.embeddings.create(model="m", input="x").data) == 1
        with (
            openai.OpenAI(base_url=url, api_key="gm_wrong", max_retries=0) as client,
            pytest.raises(openai.AuthenticationError) as caught,
        ):
            client.embeddings.create(model="m", input="x")
        assert caught.value.code == "wrong_key" and "gm_wrong" not in json.dumps(caught.value.body)
