"""An S3 server on a port of its own: moto's, with small pages and with faults at will."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import boto3
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

PAGE = 3
"""Objects on a page of a listing."""

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
}
"""The environment in which a client finds credentials, and no others."""

Environ = dict[str, Any]
Start = Callable[..., Any]


_buckets = count()  # moto keeps one world for all servers of a process


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """Say nothing."""


@dataclass
class Fault:
    """What happens to requests of a method whose path and query contain a text, so many times."""

    method: str
    part: str
    answer: Callable[[Environ, Start], Iterable[bytes]]
    times: int = 1


@dataclass
class ObjectServer:
    """The server as tests see it.

    Attributes:
        requests: of all times: method, and path with query.
        client: of boto3, to look from outside.
    """

    url: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)
    client: Any = None
    _faults: list[Fault] = field(default_factory=list)
    _inner: Any = field(default_factory=lambda: DomainDispatcherApplication(create_backend_app))

    @staticmethod
    def admit(patch: pytest.MonkeyPatch) -> None:
        """Have this process, and those that it starts, find credentials."""
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)

    def bucket(self, **objects: bytes) -> str:
        """Make a bucket; its name."""
        name = f"bucket-{next(_buckets)}"
        self.client.create_bucket(Bucket=name)
        for key, content in objects.items():
            self.put(name, key, content)
        return name

    def put(self, bucket: str, key: str, content: bytes = b"content") -> str:
        """Write an object; its ETag."""
        return str(self.client.put_object(Bucket=bucket, Key=key, Body=content)["ETag"].strip('"'))

    def keys(self, bucket: str) -> list[str]:
        """All keys of a bucket."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return [one["Key"] for page in pages for one in page.get("Contents", ())]

    def count(self, method: str, part: str = "") -> int:
        """How many requests of a method had this in their path and query."""
        return sum(one == method and part in path for one, path in self.requests)

    def fail(
        self, method: str, part: str, status: int, code: str, *, times: int = 1, headers: dict[str, str] | None = None
    ) -> None:
        """Have requests refused."""
        body = f"<Error><Code>{code}</Code><Message>as the test has it</Message></Error>" if code else ""
        self.answer(method, part, status, body, times=times, headers=headers)

    def answer(
        self, method: str, part: str, status: int, body: str, *, times: int = 1, headers: dict[str, str] | None = None
    ) -> None:
        """Have requests answered with this."""

        def answer(environ: Environ, start: Start) -> Iterable[bytes]:
            sent = {"Content-Type": "application/xml", "Content-Length": str(len(body)), **(headers or {})}
            start(f"{status} As the test has it", list(sent.items()))
            return [body.encode()]

        self._faults.append(Fault(method, part, answer, times))

    def cut(self, method: str, part: str, *, times: int = 1) -> None:
        """Have answers end in the middle of their body."""

        def answer(environ: Environ, start: Start) -> Iterable[bytes]:
            body = b"".join(self._inner(environ, start))
            return [body[: len(body) // 2]]

        self._faults.append(Fault(method, part, answer, times))

    def hold(self, method: str, part: str, until: threading.Event) -> None:
        """Have one request wait."""

        def answer(environ: Environ, start: Start) -> Iterable[bytes]:
            until.wait(60)
            return self._passed_on(environ, start)

        self._faults.append(Fault(method, part, answer))

    def before(self, method: str, part: str, do: Callable[[], object]) -> None:
        """Do something just before one request is answered."""

        def answer(environ: Environ, start: Start) -> Iterable[bytes]:
            do()
            return self._passed_on(environ, start)

        self._faults.append(Fault(method, part, answer))

    def heal(self) -> None:
        """No more faults."""
        self._faults.clear()

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        """Answer a request, as WSGI has it."""

        def start_once(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            # Werkzeug adds one of its own, and strict clients refuse two.
            return start(status, [one for one in headers if one[0].lower() != "server"], *rest)

        method, where = environ["REQUEST_METHOD"], f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        self.requests.append((method, where))
        for fault in self._faults:
            if fault.times and fault.method == method and fault.part in where:
                fault.times -= 1
                return fault.answer(environ, start_once)
        return self._passed_on(environ, start_once)

    def _passed_on(self, environ: Environ, start: Start) -> Iterable[bytes]:
        answered: Iterable[bytes] = self._inner(environ, start)
        return answered


@contextmanager
def serving_objects() -> Iterator[ObjectServer]:
    """Start one."""
    found = ObjectServer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", str(PAGE))
        server = make_server("127.0.0.1", 0, found, threaded=True, request_handler=_Quiet)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="object server")
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_port}"
        found.client = boto3.client(
            "s3",
            endpoint_url=found.url,
            region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )
        try:
            yield found
        finally:
            found.client.close()
            server.shutdown()
            thread.join(10)
            server.server_close()
