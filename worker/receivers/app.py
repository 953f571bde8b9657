"""The FastAPI application."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from worker.embedded import Services
from worker.receivers import (
    health,
    ingest,
    openai_dialect,
    problems,
    search,
    sources,
    status,
    supabase,
    syncs,
    webhooks,
)
from worker.receivers.body import MOST_BODY_BYTES, limited
from worker.receivers.context import Context
from worker.receivers.problems import MEDIA_TYPE, Problem
from worker.settings import Settings

log = logging.getLogger(__name__)

ROUTERS = (
    ingest.router,
    sources.router,
    syncs.router,
    search.router,
    health.router,
    status.router,
    openai_dialect.router,
    supabase.router,
)
STREAMED = frozenset({"/ingest/file", "/sources"})
"""Paths whose endpoints read the body piece by piece and keep the limit themselves."""

DESCRIPTION = """
Documents in, answers out. Send files, addresses or texts to `/ingest/…`, ask `/search`, look how far a document is
at `/sources/{id}`, have a place looked at by `/syncs`. Errors are problem documents (RFC 9457) with a `remedy`.
"""
COMMON_ERRORS = {
    400: "The request cannot be read",
    401: "No valid API key",
    403: "The API key lacks the scope",
    422: "A field is not as it must be; it is named",
    503: "A service that is needed does not answer; try again after `Retry-After`",
}


def create_http_app(settings: Settings, services: Services) -> FastAPI:
    """The HTTP service with all its endpoints; its state is a `Context` in `app.state.context`."""
    context = Context(settings, services)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        threading.Thread(target=context.warm, name="warm", daemon=True).start()
        yield
        context.close()

    app = FastAPI(
        title="Gristmill",
        version=version("gristmill"),
        description=DESCRIPTION,
        lifespan=lifespan,
        responses={status: {"description": text} for status, text in COMMON_ERRORS.items()},
    )
    app.state.context = context
    app.state.readiness = health.Readiness(context)
    problems.install(app)
    app.add_middleware(_Gate)
    for router in ROUTERS:
        app.include_router(router)
    webhooks.install(app, settings)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


class _Gate:
    """Around every request: a limit to its body, one line in the log, and an answer whatever goes wrong."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        taken = receive if scope["path"] in STREAMED else limited(scope, receive, MOST_BODY_BYTES)
        try:
            await self._app(scope, taken, noted)
        except Exception as error:
            if status:  # too late for another answer: the connection breaks off
                raise
            await problems.problem_of(error)(scope, receive, noted)
        finally:
            # Quoted, so that nobody writes lines of his own into the log; the query may hold names and is left out.
            path = quote(scope["path"], safe="/:@!$&'()*+,;=~", errors="replace")[:500]
            took = (time.monotonic() - began) * 1000
            log.info("%s %s %s %.0f ms", scope["method"], path, status or "aborted", took)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with every error as the problem document that it is."""
    if app.openapi_schema:
        return app.openapi_schema
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for model in (Problem, ingest.SentText, ingest.SentUrl, syncs.AskedRun):
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for path in document["paths"].values():
        for operation in path.values():
            for code, response in operation["responses"].items():
                if code >= "400" and "content" not in response:
                    response["content"] = content
    app.openapi_schema = document
    return document
