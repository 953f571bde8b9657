"""The HTTP service on a port of its own, in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn
from fastapi import FastAPI

from worker.process import wait_for


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Serve an application with uvicorn, as in production; gives its base url."""
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, access_log=False, timeout_graceful_shutdown=5)
    )
    thread = threading.Thread(target=server.run, name="http service")
    thread.start()
    try:
        assert wait_for(lambda: server.started or not thread.is_alive(), 60) and server.started
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)


@contextmanager
def client_of(app: FastAPI, headers: dict[str, str] | None = None) -> Iterator[httpx.Client]:
    """A client of the application, over a real socket."""
    with serving(app) as url, httpx.Client(base_url=url, timeout=60, headers=headers, trust_env=False) as client:
        yield client
