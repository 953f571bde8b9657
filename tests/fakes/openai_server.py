"""An OpenAI-compatible embeddings endpoint on the loopback interface that can misbehave on command.

`POST /v1/embeddings` and `GET /v1/models`, vectors made from the text alone: each word is hashed to a few
dimensions, so texts that share words are near each other, in every process and on every run.

    with OpenAIServer() as server:
        client = openai.OpenAI(base_url=server.base_url, api_key="any")
        server.misbehave("rate_limit", times=2, retry_after="0.5")
        server.texts_embedded  # texts in answers with status 200

As a program: `python -m tests.fakes.openai_server --port 8089`.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from tests.fakes.ports import reserved_port

Fault = Literal[
    "rate_limit",  # 429, with Retry-After
    "quota",  # 429, insufficient_quota
    "error",  # 500
    "overloaded",  # 503, with Retry-After
    "slow",  # answers only when `release()` is called or the server stops
    "truncated",  # connection closed in the middle of the body
    "cut_json",  # half a JSON document, with the length it claims
    "html",  # a proxy's page, with status 200
    "wrong_dimensions",  # one dimension short
    "uneven_dimensions",  # the last vector is one short
    "too_few",  # the last vector is missing
    "none",  # no vector at all
    "misnumbered",  # every vector says it is the first
    "shuffled",  # right, but in reverse order
    "nan",  # the last vector holds a NaN
    "zero",  # the last vector is all zeros
    "bad_base64",  # vectors that no decoder takes
    "not_numbers",  # vectors of words
    "empty",  # vectors of no values
    "unnumbered",  # vectors without an index
    "unauthorised",  # 401
    "forbidden",  # 403
    "refused",  # 400 about one text
    "request_too_large",  # 429 of one request over a whole minute's tokens
    "odd_base64",  # vectors that are cut within a number
    "short_base64",  # vectors that are cut between two numbers
    "other_model",  # right, but by another name
]


def embed(text: str, dimensions: int) -> NDArray[np.float32]:
    """The vector of a text, float32, shape `(dimensions,)`, length 1."""
    vector = np.zeros(dimensions)
    for word in re.findall(r"\w+", text.lower()) or [text]:
        digest = hashlib.sha256(word.encode()).digest()
        for at in range(0, 16, 4):
            place = int.from_bytes(digest[at : at + 4])
            vector[place % dimensions] += 1.0 if digest[at + 16] & 1 else -1.0
    vector[int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) % dimensions] += 0.01  # never all zeros
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class _Fault:
    kind: Fault
    headers: Mapping[str, str]


class OpenAIServer:
    """The server; a context manager that starts and stops it.

    Args:
        port: 0 for a free one, which it keeps over `stop()` and `start()`.
        dimensions: vector size where the request names none.
        require_key: the only key that is let in, None to let in everyone.
        longest: characters above which a text is refused as too long for the model.
        delay: seconds before every answer.

    Attributes:
        requests: bodies of all embedding requests, as they came.
        texts_embedded: number of texts in answers with status 200, whatever their worth.
        curses: words, each with the fault that every request with a text that holds it is answered with.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        dimensions: int = 64,
        require_key: str | None = None,
        longest: int = 32_000,
        delay: float = 0.0,
    ) -> None:
        self.port = port
        self.dimensions = dimensions
        self.require_key = require_key
        self.longest = longest
        self.delay = delay
        self.requests: list[dict[str, Any]] = []
        self.texts_embedded = 0
        self.curses: dict[str, Fault] = {}
        self._faults: deque[_Fault] = deque()
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._held = ExitStack()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as `base_url`."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings with which an installation embeds by this server."""
        return {
            "openai_base_url": self.base_url,
            "openai_api_key": "test",
            "openai_model": "fake",
            "embedding_dimensions": self.dimensions,
        }

    def misbehave(
        self,
        kind: Fault,
        *,
        times: int = 1,
        retry_after: str | None = None,
        retry_after_ms: str | None = None,
    ) -> None:
        """Answer the next `times` embedding requests with a fault."""
        headers = {"Retry-After": retry_after, "retry-after-ms": retry_after_ms}
        fault = _Fault(kind, {name: value for name, value in headers.items() if value is not None})
        with self._lock:
            self._faults.extend([fault] * times)

    def behave(self) -> None:
        """Forget the faults that are left."""
        with self._lock:
            self._faults.clear()

    def release(self) -> None:
        """Let the answers go that `slow` holds back."""
        self._released.set()

    def start(self) -> None:
        """Listen; on the same port again after a `stop()`."""
        self._released.clear()
        self.port = self.port or self._held.enter_context(reserved_port())  # nobody takes it while we are down
        self._server = _Listener(("127.0.0.1", self.port), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def stop(self) -> None:
        """Go down: connections are refused until `start()`."""
        self.release()
        if self._server and self._thread:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
        self._server = self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
        self._held.close()

    def next_fault(self, body: dict[str, Any]) -> _Fault | None:
        """Count a request; the fault to answer it with, if any."""
        with self._lock:
            self.requests.append(body)
            if self._faults:
                return self._faults.popleft()
        cursed = [fault for word, fault in self.curses.items() if any(word in text for text in body["input"])]
        return _Fault(cursed[0], {}) if cursed else None

    def count(self, texts: int) -> None:
        """Count texts that were answered."""
        with self._lock:
            self.texts_embedded += texts

    def wait_for_release(self) -> None:
        """Block until `release()` or `stop()`."""
        self._released.wait(60)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = True
    request_queue_size = 64


def _handler(server: OpenAIServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"  # a connection a request: a stopped server leaves none open

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            models = [{"id": "fake-embedding", "object": "model", "created": 0, "owned_by": "tests"}]
            self._json(200 if self.path == "/v1/models" else 404, {"object": "list", "data": models})

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path != "/v1/embeddings":
                self._error(404, f"no such path: {self.path}")
                return
            if server.require_key and self.headers.get("Authorization") != f"Bearer {server.require_key}":
                self._error(401, f"Incorrect API key: {self.headers.get('Authorization')}", code="invalid_api_key")
                return
            body = json.loads(raw)
            fault = server.next_fault(body)
            time.sleep(server.delay)
            texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
            if not fault or not self._refuse(fault):
                self._answer(body, texts, fault.kind if fault else None)

        def _refuse(self, fault: _Fault) -> bool:
            """Answer with an error if the fault is one."""
            match fault.kind:
                case "rate_limit":
                    self._error(429, "Rate limit reached", code="rate_limit_exceeded", headers=fault.headers)
                case "quota":
                    said = "You exceeded your current quota"
                    self._error(429, said, code="insufficient_quota", kind="insufficient_quota")
                case "error":
                    self._error(500, "The server had an error", headers=fault.headers)
                case "overloaded":
                    self._error(503, "Overloaded", headers=fault.headers)
                case "unauthorised":
                    self._error(401, "Incorrect API key provided", code="invalid_api_key")
                case "forbidden":
                    self._error(403, "Request blocked")
                case "refused":
                    self._error(400, "This input is not acceptable", param="input")
                case "request_too_large":
                    said = "Request too large on tokens per min (TPM): Limit 40000, Requested 99000"
                    self._error(429, said, code="rate_limit_exceeded")
                case _:
                    return False
            return True

        def _answer(self, body: dict[str, Any], texts: list[str], fault: Fault | None) -> None:
            if fault == "slow":
                server.wait_for_release()
            if not texts or not all(texts):
                self._error(400, "'$.input' is invalid: empty string", param="input")
                return
            if longest := max((len(text) for text in texts if len(text) > server.longest), default=0):
                self._error(400, f"This model's maximum context length is 8192 tokens, got {longest} characters")
                return
            size = body.get("dimensions") or server.dimensions
            vectors = [embed(text, size) for text in texts]
            match fault:
                case "wrong_dimensions":
                    vectors = [vector[:-1] for vector in vectors]
                case "uneven_dimensions":
                    vectors[-1] = vectors[-1][:-1]
                case "nan":
                    vectors[-1][0] = np.nan
                case "zero":
                    vectors[-1][:] = 0
            data = [self._item(index, vector, body, fault) for index, vector in enumerate(vectors)]
            data = data[:-1] if fault == "too_few" else [] if fault == "none" else data
            data = data[::-1] if fault == "shuffled" else data
            usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
            server.count(len(texts))
            name = "other" if fault == "other_model" else body["model"]
            answer = {"object": "list", "data": data, "model": name, "usage": usage}
            content = json.dumps(answer).encode()
            if fault == "html":
                self._send(200, b"<html><body>please log in</body></html>", mime="text/html")
            elif fault in ("truncated", "cut_json"):
                half = content[: len(content) // 2]
                self._send(200, half, length=len(content) if fault == "truncated" else len(half))
            else:
                self._send(200, content)

        def _item(
            self, index: int, vector: NDArray[np.float32], body: dict[str, Any], fault: Fault | None
        ) -> dict[str, Any]:
            shown: Any = [float(value) for value in vector]
            if body.get("encoding_format") == "base64":
                cut = {"odd_base64": -2, "short_base64": -4}.get(fault or "")
                shown = base64.b64encode(vector.astype("<f4").tobytes()[:cut]).decode()
            if fault == "bad_base64":
                shown = "AAAAA"
            shown = ["one", "two"] if fault == "not_numbers" else [] if fault == "empty" else shown
            item = {"object": "embedding", "index": 0 if fault == "misnumbered" else index, "embedding": shown}
            if fault == "unnumbered":
                del item["index"]
            return item

        def _error(
            self,
            status: int,
            message: str,
            *,
            code: str | None = None,
            kind: str = "invalid_request_error",
            param: str | None = None,
            headers: Mapping[str, str] | None = None,
        ) -> None:
            error = {"message": message, "type": kind, "code": code, "param": param}
            self._json(status, {"error": error}, headers)

        def _json(self, status: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
            self._send(status, json.dumps(value).encode(), headers=headers)

        def _send(
            self,
            status: int,
            content: bytes,
            *,
            mime: str = "application/json",
            length: int | None = None,
            headers: Mapping[str, str] | None = None,
        ) -> None:
            try:
                self.send_response(status)
                self.send_header("Content-Type", mime)
                self.send_header("Content-Length", str(len(content) if length is None else length))
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_WR)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client gave up waiting, as it may

    return Handler


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="A fake OpenAI-compatible embeddings endpoint")
    parser.add_argument("--port", type=int, default=8089)
    parser.add_argument("--dimensions", type=int, default=64)
    parser.add_argument("--require-key")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before every answer")
    options = parser.parse_args()
    with OpenAIServer(
        port=options.port, dimensions=options.dimensions, require_key=options.require_key, delay=options.delay
    ) as server:
        print(server.base_url, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
