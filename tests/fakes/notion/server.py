"""The server: Notion's REST API over HTTP on loopback, for one world."""

from __future__ import annotations

import json
import re
import secrets
import socket
import threading
import uuid
from collections import Counter, deque
from contextlib import ExitStack
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs

from tests.fakes.notion.endpoints import Endpoints, RefusedError
from tests.fakes.notion.faults import ERRORS, Fault, Faults
from tests.fakes.notion.render import VERSIONS, Renderer
from tests.fakes.notion.webhooks import Webhooks
from tests.fakes.notion.world import World
from tests.fakes.ports import reserved_port

ROUTES = (
    ("search", "POST", r"/v1/search"),
    ("data_sources.query", "POST", r"/v1/data_sources/([^/]+)/query"),
    ("data_sources", "GET", r"/v1/data_sources/([^/]+)"),
    ("databases", "GET", r"/v1/databases/([^/]+)"),
    ("pages.properties", "GET", r"/v1/pages/([^/]+)/properties/([^/]+)"),
    ("pages.markdown", "GET", r"/v1/pages/([^/]+)/markdown"),
    ("pages", "GET", r"/v1/pages/([^/]+)"),
    ("blocks.children", "GET", r"/v1/blocks/([^/]+)/children"),
    ("blocks", "GET", r"/v1/blocks/([^/]+)"),
    ("users.me", "GET", r"/v1/users/me"),
    ("users", "GET", r"/v1/users/([^/]+)"),
    ("files", "GET", r"/files/([^/]+)/[^/]*"),
)
"""Name, method and path of each endpoint."""

_ROUTES = [(name, method, re.compile(path)) for name, method, path in ROUTES]
_HTML = b"<html><head><title>502 Bad Gateway</title></head><body><center>cloudflare</center></body></html>"


class Request(NamedTuple):
    """A request that was answered, by the world's clock; status 0 where the connection was cut."""

    at: datetime
    method: str
    path: str
    endpoint: str
    status: int


class Reply(NamedTuple):
    """An answer; `whole` is the length it claims to have."""

    status: int
    content: bytes
    headers: dict[str, str]
    whole: int | None = None
    close: bool = False


class NotionServer:
    """The server; a context manager that starts and stops it.

    Args:
        world: what it serves; an empty one unless given.
        token: the only one that is let in.
        port: 0 for a free one, which it keeps over `stop()` and `start()`.

    Attributes:
        faults: what goes wrong, see `faults.Faults`.
        counts: requests by endpoint, those of unknown paths as `unknown`.
        answers: requests by endpoint and status.
        bytes_sent: in bodies of answers.
        requests_log: the last 5,000 requests.
    """

    def __init__(self, world: World | None = None, *, token: str = "ntn_fake", port: int = 0) -> None:
        self.world = world or World()
        self.token = token
        self.port = port
        self.faults = Faults(self.world.clock)
        self.counts: Counter[str] = Counter()
        self.answers: Counter[tuple[str, int]] = Counter()
        self.bytes_sent = 0
        self.requests_log: deque[Request] = deque(maxlen=5_000)
        self._endpoints = Endpoints(self.world)
        self._secret = secrets.token_bytes(16)
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._held = ExitStack()
        self._server: _Listener | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """What a Notion client takes as `base_url`."""
        return f"http://127.0.0.1:{self.port}"

    def release(self) -> None:
        """Let the answers go that `slow` holds back now."""
        held, self._released = self._released, threading.Event()
        held.set()

    def webhook(self, url: str, token: str, **how: Any) -> Webhooks:
        """Subscribe an address to the world's events, after the handshake; see `webhooks.Webhooks`."""
        subscription = Webhooks(self.world, url, token, **how)
        subscription.handshake()
        return subscription

    def start(self) -> None:
        """Listen; on the same port again after a `stop()`."""
        self.port = self.port or self._held.enter_context(reserved_port())  # nobody takes it while we are down
        self._server = _Listener(("127.0.0.1", self.port), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def stop(self) -> None:
        """Go down: connections are refused until `start()`."""
        self.release()
        if self._server and self._thread:
            self._server.shutdown()
            self._server.hang_up()
            self.release()
            self._server.server_close()
            self._thread.join()
        self._server = self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
        self._held.close()

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> Reply | None:
        """The answer to a request; None where the connection is to be closed without one."""
        path, _, query = target.partition("?")
        endpoint, parts = _route(method, path)
        if endpoint == "pages.markdown" and not self.world.markdown_on:
            endpoint, parts = "unknown", ()
        fault = self.faults.next(endpoint)
        if fault and fault.kind == "slow":
            self._released.wait(fault.seconds)
        whole = self._faulty(fault) or self._reply(endpoint, parts, query, headers, body, fault)
        reply = _damaged(whole, fault) if fault else whole
        with self._lock:
            self.counts[endpoint] += 1
            status = reply.status if reply and reply.whole is None else 0
            self.answers[endpoint, status] += 1
            self.bytes_sent += len(reply.content) if reply else 0
            self.requests_log.append(Request(self.world.clock(), method, target, endpoint, status))
        return reply

    def _faulty(self, fault: Fault | None) -> Reply | None:
        if fault is None:
            return None
        if fault.kind in ("bad_gateway", "html"):
            return Reply(502 if fault.kind == "bad_gateway" else 200, _HTML, {"Content-Type": "text/html"})
        if fault.kind not in ERRORS:
            return None
        status, code, message = ERRORS[fault.kind]
        headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
        more = {"rate_limit_reason": fault.reason} if fault.kind == "rate_limited" and fault.reason else {}
        return _error(status, code, message, headers, more)

    def _reply(
        self, endpoint: str, parts: tuple[str, ...], query: str, headers: Any, body: bytes, fault: Fault | None
    ) -> Reply:
        version = headers.get("Notion-Version")
        renderer = Renderer(self.world, self.base_url, version or "", self._secret)
        if endpoint == "files":
            with self.world.lock:
                stored = renderer.opened(parts[0], query)
            if stored is None:
                refusal = b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"
                return Reply(403, refusal, {"Content-Type": "application/xml"})
            return Reply(200, stored.content, {"Content-Type": stored.mime})
        given = headers.get("Authorization", "")
        if not given.startswith("Bearer "):
            return _error(401, "unauthorized", 'Authorization header must use the format "Bearer <token>".')
        if given != f"Bearer {self.token}":
            return _error(401, "unauthorized", "API token is invalid.")
        if endpoint == "unknown":
            return _error(400, "invalid_request_url", "Invalid request URL.")
        if version not in VERSIONS:
            known = "defined" if version is None else " or ".join(f'`"{one}"`' for one in VERSIONS)
            was = "`undefined`" if version is None else f'`"{version}"`'
            said = (
                f"Notion-Version header failed validation: Notion-Version header should be {known}, instead was {was}."
            )
            return _error(400, "missing_version", said)
        try:
            asked = json.loads(body) if body else {}
        except ValueError:
            return _error(400, "invalid_json", "Error parsing JSON body.")
        try:
            with self.world.lock:
                found = self._endpoints.answer(endpoint, parts, parse_qs(query), asked, renderer, fault)
        except RefusedError as error:
            return _error(error.status, error.code, str(error))
        return _json(200, found)


def _route(method: str, path: str) -> tuple[str, tuple[str, ...]]:
    for name, right, pattern in _ROUTES:
        if method == right and (match := pattern.fullmatch(path)):
            return name, match.groups()
    return "unknown", ()


def _json(status: int, said: dict[str, Any], headers: dict[str, str] | None = None) -> Reply:
    request_id = str(uuid.uuid4())
    content = json.dumps({**said, "request_id": request_id}, ensure_ascii=False).encode()
    known = {"Content-Type": "application/json; charset=utf-8", "x-notion-request-id": request_id}
    return Reply(status, content, known | (headers or {}))


def _error(
    status: int, code: str, message: str, headers: dict[str, str] | None = None, more: dict[str, Any] | None = None
) -> Reply:
    said = {"object": "error", "status": status, "code": code, "message": message}
    return _json(status, {**said, "additional_data": more} if more else said, headers)


def _damaged(reply: Reply, fault: Fault) -> Reply | None:
    half = reply.content[: len(reply.content) // 2]
    match fault.kind:
        case "dropped":
            return None
        case "cut":
            return reply._replace(content=half, whole=len(reply.content), close=True)
        case "cut_json":
            return reply._replace(content=half)
        case _:
            return reply


class _Listener(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    request_queue_size = 64

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: set[socket.socket] = set()
        self._closing = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._closing:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._closing:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End the connections that clients keep open."""
        with self._closing:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # the client was faster


def _handler(server: NotionServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer is one packet: head and body apart would wait for each other
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                self.close_connection = True  # the client gave up waiting, as it may

        def finish(self) -> None:
            try:
                super().finish()
            except ConnectionError:
                self.close_connection = True

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            reply = server.answer(self.command, self.path, self.headers, body)
            if reply is None:
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.content) if reply.whole is None else reply.whole))
            self.end_headers()
            self.wfile.write(reply.content)
            self.wfile.flush()
            self.close_connection = self.close_connection or reply.close

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _any  # noqa: N815

    return Handler
