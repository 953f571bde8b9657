"""The OpenAPI document, and requests made up from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

from tests.fakes.http_service import serving
from worker.embedded import Services
from worker.receivers import context as context_module
from worker.receivers.app import create_http_app
from worker.receivers.context import Context
from worker.settings import Settings

OWN = ("/ingest", "/sources", "/search", "/syncs")
READINESS = "/readyz"  # its 503 is an answer, not a failure
EXAMPLES = 12
PATIENCE = 60.0
"""Seconds for an answer: a machine that stands still for some is no error of the server."""


@pytest.fixture
def url(tmp_path: Path, services: Services, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    home = Settings(home=tmp_path, max_bytes=100_000)
    monkeypatch.setattr(context_module, "CONNECTION_SECONDS", PATIENCE)
    app = create_http_app(home, Services(dsn, services.broker_url))
    # CPython 3.11 counts the recursion of `ast.parse` over all threads, so the model, whose arrays are read with it, is
    # loaded before Hypothesis parses sources: a SystemError otherwise.
    app.state.context.warm()
    monkeypatch.setattr(Context, "warm", lambda self: None)
    with serving(app) as address:
        yield address


def test_the_document_describes_every_endpoint(url: str) -> None:
    document: dict[str, Any] = httpx.get(url + "/openapi.json", timeout=PATIENCE, trust_env=False).json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], (method, path)
            if path.startswith(OWN):
                assert operation["security"], (method, path)
                for status in ("401", "403", "422", "503"):
                    (media_type,) = operation["responses"][status]["content"]
                    assert media_type == "application/problem+json", (method, path, status)
    references = {text.split('"')[0] for text in str(document).replace("'", '"').split("#/components/schemas/")[1:]}
    assert references <= set(document["components"]["schemas"])
    assert {"POST", "PUT", "GET", "DELETE"} <= {m.upper() for one in document["paths"].values() for m in one}


@pytest.mark.timeout(400)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of libraries that schemathesis uses
@pytest.mark.filterwarnings("ignore:Do not use the .random. module")  # the threads of the service do, meanwhile
def test_no_request_that_fits_or_nearly_fits_is_a_server_error(url: str) -> None:
    schema = schemathesis.openapi.from_url(url + "/openapi.json", timeout=PATIENCE)
    tried = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in GenerationMode if operation.path != READINESS else ():

            @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            @given(case=operation.as_strategy(generation_mode=mode))
            def check(case: Any) -> None:
                nonlocal tried
                tried += 1
                for place in (case.body, case.query):
                    if isinstance(place, dict):
                        place.pop("wait", None)  # it would take its time
                case.call_and_validate(checks=[not_a_server_error], timeout=PATIENCE)

            # An operation without parameters and body has no wrong request.
            with suppress(Unsatisfiable) if mode is GenerationMode.NEGATIVE else nullcontext():
                check()
    assert tried >= 10 * EXAMPLES
