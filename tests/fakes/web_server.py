"""A web server on loopback that plays what a test tells it to, and one that only counts who comes."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Call:
    """A request that came in; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Answer:
    """What the server says. A body in pieces is sent in chunks, one after the other."""

    status: int = 200
    body: bytes | Iterator[bytes] = b""
    headers: dict[str, str] = field(default_factory=dict)


class WebServer:
    """What was asked, and where it listens."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.calls: list[Call] = []


@contextmanager
def web_server(answer: Callable[[Call], Answer], *, tls: ssl.SSLContext | None = None) -> Iterator[WebServer]:
    """Serve on 127.0.0.1 until the end of the `with`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except (ConnectionError, ssl.SSLError):  # the client has seen enough
                self.close_connection = True

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {key.lower(): value for key, value in self.headers.items()}
            call = Call(self.command, self.path, headers, body)
            server.calls.append(call)
            said = answer(call)
            self.send_response(said.status)
            for key, value in said.headers.items():
                self.send_header(key, value)
            if isinstance(said.body, bytes):
                if "Content-Length" not in said.headers:
                    self.send_header("Content-Length", str(len(said.body)))
                self.end_headers()
                self.wfile.write(said.body)
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in said.body:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")

        do_POST = do_GET  # noqa: N815

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    class Listener(ThreadingHTTPServer):
        request_queue_size = 64

        def handle_error(self, request: object, client_address: object) -> None:
            """A handshake that the client refused is what some tests want."""

    with Listener(("127.0.0.1", 0), Handler) as listener:
        if tls is not None:
            listener.socket = tls.wrap_socket(listener.socket, server_side=True)
        server = WebServer(listener.server_port)
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()


class Trap:
    """Counts connections to a port of loopback, of both families."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self.port: int = sockets[0].getsockname()[1]
        self._sockets = sockets

    def connections(self) -> int:
        """How many connections were made; a connection is complete before anybody accepts it."""
        count = 0
        for listening in self._sockets:
            listening.setblocking(False)
            while True:
                try:
                    listening.accept()[0].close()
                except BlockingIOError:
                    break
                count += 1
        return count


@contextmanager
def trap() -> Iterator[Trap]:
    """Listen on one port of every loopback and local address."""
    sockets = [socket.create_server(("0.0.0.0", 0))]
    if socket.has_dualstack_ipv6():
        port = sockets[0].getsockname()[1]
        sockets.append(socket.create_server(("::", port), family=socket.AF_INET6))
    try:
        yield Trap(sockets)
    finally:
        for listening in sockets:
            listening.close()
