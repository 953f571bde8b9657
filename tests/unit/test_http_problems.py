"""Every error as a problem document."""

from __future__ import annotations

import json
import logging

import psycopg
import pytest
from psycopg_pool import PoolTimeout
from starlette.exceptions import HTTPException

from pipelines.errors import ConfigurationError, PermanentError, RetryableError, UnavailableError
from worker.receivers.problems import ProblemError, problem_of


@pytest.mark.parametrize(
    ("error", "status", "code", "retry"),
    [
        (PermanentError("too_large", "it is too large", "split it"), 413, "too_large", None),
        (PermanentError("unknown_language", "no"), 422, "unknown_language", None),
        (UnavailableError("embedder_away", "the embedder is away", retry_after=7.4), 503, "embedder_away", "7"),
        (RetryableError("busy", "busy"), 503, "busy", "5"),
        (ConfigurationError("model_differs", "another model"), 503, "model_differs", None),
        (psycopg.OperationalError("password=canary"), 503, "database_unavailable", "5"),
        (PoolTimeout("no connection"), 503, "database_unavailable", "5"),
        (psycopg.errors.CharacterNotInRepertoire("canary"), 422, "invalid_value", None),
        (HTTPException(405), 405, "method_not_allowed", None),
        (ProblemError(409, "conflict", "no", headers={"Retry-After": "1"}), 409, "conflict", "1"),
        (ZeroDivisionError("canary"), 500, "unexpected", None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_each_kind_of_error(error: Exception, status: int, code: str, retry: str | None) -> None:
    answer = problem_of(error)
    body = json.loads(bytes(answer.body))
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code)
    assert answer.media_type == "application/problem+json"
    assert body["type"] == f"urn:gristmill:problem:{code}" and body["title"] and body["detail"]
    assert answer.headers.get("Retry-After") == retry
    assert b"canary" not in bytes(answer.body)


def test_what_nobody_foresaw_is_found_in_the_log_by_its_number(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        detail = json.loads(bytes(problem_of(ZeroDivisionError("x")).body))["detail"]
    assert detail.split()[-1] in caplog.text and "ZeroDivisionError" in caplog.text
