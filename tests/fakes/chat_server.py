"""An OpenAI-compatible chat endpoint on the loopback interface that answers from what it was given.

`POST /v1/chat/completions`: the answer is the first numbered passage (`[1] …`) of the last message, quoted,
with its number. So an answer is right if and only if the search was.

    with ChatServer() as server:
        client = openai.OpenAI(base_url=server.base_url, api_key="any")
        server.requests  # bodies, as they came
"""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_PASSAGE = re.compile(
    r"^\[1\] (?P<label>[^\n]+)\n(?P<text>.+?)(?=\n\n\[2\] |\n\nQuestion: |\Z)", re.MULTILINE | re.DOTALL
)


def quote(prompt: str) -> str:
    """The answer to a prompt: its first passage and `[1]`."""
    passage = _PASSAGE.search(prompt)
    if passage is None:
        return "The passages do not say."
    return f"“{passage['text'].strip()}” [1]"


class ChatServer:
    """The server; a context manager that starts and stops it.

    Attributes:
        requests: bodies of all requests, as they came.
    """

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as `base_url`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(server: ChatServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path != "/v1/chat/completions" or body.get("stream"):
                self._send(404, {"error": {"message": f"not served: {self.path}", "type": "invalid_request_error"}})
                return
            server.requests.append(body)
            content = body["messages"][-1]["content"]
            prompt = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
            message = {"role": "assistant", "content": quote(prompt)}
            self._send(
                200,
                {
                    "id": "chatcmpl-1",
                    "object": "chat.completion",
                    "created": 0,
                    "model": body["model"],
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
                },
            )

        def _send(self, status: int, value: Any) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler
