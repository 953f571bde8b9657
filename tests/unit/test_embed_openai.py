"""The OpenAI-compatible embedder through the real client, against a server that misbehaves."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import numpy as np
import pytest

from pipelines.embed import Embedder, EmbedderSpec, open_embedder
from pipelines.embed.openai_api import plain_name, retry_after
from pipelines.errors import (
    ConfigurationError,
    GristmillError,
    PermanentError,
    RetryableError,
    UnavailableError,
)
from tests.fakes import openai_server
from tests.fakes.openai_server import OpenAIServer

KEY = "sk-secret-0123456789"


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(require_key=KEY, longest=2_000) as running:
        yield running


def open_to(server: OpenAIServer, **changes: Any) -> Embedder:
    spec = {"kind": "openai", "model": "m", "base_url": server.base_url, "api_key": KEY, "timeout": 10.0}
    return open_embedder(EmbedderSpec(**{**spec, **changes}))


def test_vectors_come_in_order_as_unit_float32(server: OpenAIServer) -> None:
    vectors = open_to(server).embed_documents(["one apple", "two pears", "three plums"])
    assert [v.dtype for v in vectors] == [np.float32] * 3
    for vector, text in zip(vectors, ["one apple", "two pears", "three plums"], strict=True):
        np.testing.assert_allclose(vector, openai_server.embed(text, 64), atol=1e-6)
    assert np.linalg.norm(vectors[0]) == pytest.approx(1, abs=1e-6)


def test_base64_is_asked_for_and_dimensions_only_if_set(server: OpenAIServer) -> None:
    plain, small = open_to(server), open_to(server, dimensions=16)
    plain.embed_query("apple")
    assert small.embed_query("apple").shape == (16,)
    first, second = server.requests
    assert first["encoding_format"] == "base64"
    assert "dimensions" not in first
    assert second["dimensions"] == 16
    assert (plain.model, small.model) == ("openai:m", "openai:m@16")


def test_dimensions_are_learnt_from_one_probe(server: OpenAIServer) -> None:
    embedder = open_to(server)
    assert server.requests == []
    assert (embedder.dimensions, embedder.dimensions) == (64, 64)
    assert len(server.requests) == 1


def test_dimensions_are_learnt_from_any_answer(server: OpenAIServer) -> None:
    embedder = open_to(server)
    embedder.embed_query("apple")
    assert embedder.dimensions == 64
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [
        ({"batch_texts": 4}, [4, 4, 2]),
        ({"batch_tokens": 70}, [3, 3, 3, 1]),  # 20 tokens a text
        ({"batch_tokens": 1}, [1] * 10),
        ({}, [10]),
    ],
)
def test_batches_by_count_and_tokens(server: OpenAIServer, limits: dict[str, int], sizes: list[int]) -> None:
    texts = [f"{number} " + "pear " * 18 for number in range(10)]
    vectors = open_to(server, **limits).embed_documents(texts)
    assert [len(body["input"]) for body in server.requests] == sizes
    np.testing.assert_allclose(vectors[9], openai_server.embed(texts[9], 64), atol=1e-6)


def test_shuffled_answer_is_put_in_order(server: OpenAIServer) -> None:
    server.misbehave("shuffled")
    vectors = open_to(server).embed_documents(["apple", "pear"])
    np.testing.assert_allclose(vectors[0], openai_server.embed("apple", 64), atol=1e-6)


def test_no_texts_need_no_request(server: OpenAIServer) -> None:
    assert open_to(server).embed_documents([]) == []
    assert server.requests == []


@pytest.mark.parametrize("text", ["", " \n"])
def test_blank_text_is_never_sent(server: OpenAIServer, text: str) -> None:
    with pytest.raises(PermanentError) as caught:
        open_to(server).embed_documents(["apple", text])
    assert caught.value.code == "blank_text"
    assert server.requests == []


@pytest.mark.parametrize(
    ("fault", "kind", "code"),
    [
        ("rate_limit", UnavailableError, "rate_limited"),
        ("quota", UnavailableError, "quota_exhausted"),
        ("error", UnavailableError, "embedder_failed"),
        ("overloaded", UnavailableError, "embedder_overloaded"),
        ("truncated", UnavailableError, "embedder_broken_answer"),
        ("cut_json", UnavailableError, "embedder_broken_answer"),
        ("html", UnavailableError, "embedder_broken_answer"),
        ("uneven_dimensions", RetryableError, "embedder_bad_answer"),
        ("too_few", RetryableError, "embedder_bad_answer"),
        ("none", RetryableError, "embedder_bad_answer"),
        ("misnumbered", RetryableError, "embedder_bad_answer"),
        ("not_numbers", RetryableError, "embedder_bad_answer"),
        ("empty", RetryableError, "embedder_bad_answer"),
        ("unnumbered", RetryableError, "embedder_bad_answer"),
        ("bad_base64", RetryableError, "embedder_bad_answer"),
        ("nan", RetryableError, "embedding_not_finite"),
        ("zero", RetryableError, "embedding_not_finite"),
    ],
)
def test_faults_become_errors_and_pass(server: OpenAIServer, fault: Any, kind: type, code: str) -> None:
    embedder = open_to(server)
    server.misbehave(fault)
    with pytest.raises(GristmillError) as caught:
        embedder.embed_documents(["apple", "pear"])
    assert (type(caught.value), caught.value.code) == (kind, code)
    assert len(server.requests) == 1  # nothing is retried here
    assert len(embedder.embed_documents(["apple", "pear"])) == 2


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after": "9", "retry_after_ms": "250"}, 0.25),
        ({}, None),
    ],
)
@pytest.mark.parametrize("fault", ["rate_limit", "overloaded"])
def test_retry_after_is_handed_on(
    server: OpenAIServer, fault: Any, headers: dict[str, Any], seconds: float | None
) -> None:
    server.misbehave(fault, **headers)
    with pytest.raises(UnavailableError) as caught:
        open_to(server).embed_query("apple")
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(
    ("milliseconds", "header", "seconds"),
    [
        (None, None, None),
        (None, "soon", None),
        (None, "nan", None),
        ("x", "3", 3.0),
        ("1500", None, 1.5),
        (None, "-5", 0.0),
        (None, "Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        (None, "99999999", 3_600.0),
        ("99999999999", "1", 3_600.0),
        (None, "Fri, 31 Dec 9999 23:59:59 GMT", 3_600.0),
        (None, "1e999", None),
    ],
)
def test_retry_after_headers(milliseconds: str | None, header: str | None, seconds: float | None) -> None:
    assert retry_after(milliseconds, header) == seconds


def test_retry_after_as_a_date() -> None:
    seconds = retry_after(None, formatdate(time.time() + 120, usegmt=True))
    assert seconds is not None
    assert 100 < seconds <= 120


def test_wrong_dimensions_are_a_matter_of_settings(server: OpenAIServer) -> None:
    embedder = open_to(server, dimensions=16)
    server.misbehave("wrong_dimensions")
    with pytest.raises(ConfigurationError) as caught:
        embedder.embed_documents(["apple"])
    assert caught.value.code == "embedding_dimensions"
    assert "15 dimensions" in caught.value.cause
    assert "instead of 16" in caught.value.cause


def test_a_size_that_changes_is_refused(server: OpenAIServer) -> None:
    embedder = open_to(server)
    embedder.embed_query("apple")
    server.misbehave("wrong_dimensions")
    with pytest.raises(ConfigurationError, match="63 dimensions for m instead of 64"):
        embedder.embed_query("apple")


def test_a_size_is_not_learnt_from_an_answer_that_may_be_wrong(server: OpenAIServer) -> None:
    embedder = open_to(server)
    server.misbehave("wrong_dimensions")
    assert embedder.embed_documents(["apple"])[0].shape == (63,)
    assert embedder.embed_documents(["apple"])[0].shape == (64,)


def test_two_models_in_one_answer(server: OpenAIServer) -> None:
    server.misbehave("other_model")
    with pytest.raises(ConfigurationError) as caught:
        open_to(server, batch_texts=1).embed_documents(["apple", "pear"])
    assert caught.value.code == "embedder_other_model"


@pytest.mark.parametrize(
    ("name", "plain"), [("m", "m"), ("openai/M:latest", "m"), ("/models/bge-m3/", "bge-m3"), ("a:v1", "a:v1")]
)
def test_a_models_name_without_what_gateways_put_around_it(name: str, plain: str) -> None:
    assert plain_name(name) == plain


def test_slow_endpoint(server: OpenAIServer) -> None:
    server.misbehave("slow")
    with pytest.raises(UnavailableError) as caught:
        open_to(server, timeout=0.2).embed_query("apple")
    assert caught.value.code == "embedder_timeout"
    assert "0.2 s" in caught.value.cause


def test_endpoint_down_and_back(server: OpenAIServer) -> None:
    embedder = open_to(server)
    embedder.embed_query("apple")
    server.stop()
    with pytest.raises(UnavailableError) as caught:
        embedder.embed_query("apple")
    assert caught.value.code == "embedder_unreachable"
    server.start()
    assert embedder.embed_query("apple").shape == (64,)


def test_wrong_key_is_named_by_its_setting_and_never_shown(
    server: OpenAIServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    embedder = open_to(server, api_key="sk-wrong-987")
    with pytest.raises(UnavailableError) as caught:
        embedder.embed_query("apple")
    assert caught.value.code == "embedder_unauthorised"
    assert "GRISTMILL_OPENAI_API_KEY" in caught.value.remedy
    assert "sk-wrong-987" not in str(caught.value)
    assert "sk-wrong-987" not in caplog.text
    assert "sk-wrong-987" not in repr(EmbedderSpec("openai", api_key="sk-wrong-987"))


def test_text_too_long_is_found_in_its_batch(server: OpenAIServer) -> None:
    texts = [f"text {number}" for number in range(9)]
    texts[6] = "The culprit " + "x" * 3_000
    with pytest.raises(PermanentError) as caught:
        open_to(server).embed_documents(texts)
    assert caught.value.code == "text_too_long"
    assert "The culprit" in caught.value.cause
    assert "3,012 characters" in caught.value.cause
    assert caught.value.remedy.startswith("set GRISTMILL_EMBED_MAX_TOKENS to the most tokens that m takes")
    assert len(server.requests) <= 8


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"base_url": None, "model": None}, 8_191),
        ({"base_url": None, "model": "a-newer-one"}, 8_191),
        ({"model": "text-embedding-3-large"}, 8_191),
        ({"model": "nomic"}, None),
        ({"model": "nomic", "max_tokens": 512}, 512),
        ({"model": "text-embedding-3-small", "max_tokens": 2_048}, 2_048),
    ],
)
def test_limit(server: OpenAIServer, changes: dict[str, Any], limit: int | None) -> None:
    assert open_to(server, **changes).limit == limit


def test_openais_tokens_are_bounded_by_bytes(server: OpenAIServer) -> None:
    embedder = open_to(server, model="text-embedding-3-small")
    assert [embedder.count_tokens(text) for text in ("", "pump", "漢字", "👍🏽")] == [0, 4, 6, 8]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 4),
        ("The pump must be switched off.", 4 + 12),  # half as much again as the estimate
        ("!!", 4 + 2),  # bytes are a bound
        ("\ufdfa", 4 + 18),
    ],
)
def test_tokens_of_a_model_that_nobody_knows(server: OpenAIServer, text: str, tokens: int) -> None:
    assert open_to(server, max_tokens=512).count_tokens(text) == tokens


def test_a_text_over_a_limit_that_is_set_too_high(server: OpenAIServer) -> None:
    with pytest.raises(PermanentError) as caught:
        open_to(server, max_tokens=9_000).embed_documents(["x" * 3_000])
    assert caught.value.remedy.startswith("lower GRISTMILL_EMBED_MAX_TOKENS, 9,000 now")


def test_wrong_address(server: OpenAIServer) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_to(server, base_url=server.base_url + "/v2").embed_query("apple")
    assert caught.value.code == "embedder_not_served"
    assert "GRISTMILL_OPENAI_BASE_URL" in caught.value.remedy


def test_neither_key_nor_address() -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_embedder(EmbedderSpec("openai"))
    assert caught.value.code == "embedder_key_missing"


def test_no_key_is_needed_where_none_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with OpenAIServer() as server:
        assert open_to(server, api_key=None).embed_query("apple").shape == (64,)


def test_similar_texts_are_near(server: OpenAIServer) -> None:
    apple, more, other = open_to(server).embed_documents(
        ["the red apple falls", "a red apple fell", "quarterly tax return"]
    )
    assert apple @ more > apple @ other + 0.2
