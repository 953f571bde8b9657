"""A bucket on an S3 server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar
from urllib.parse import quote

from tests.fakes.object_server import ObjectServer
from tests.fakes.sync_house import SyncHouse
from tests.fakes.worlds.crawl import Crawl
from tests.fakes.worlds.ground import Ground
from tests.fakes.worlds.world import CONFIRM
from worker.connectors.bucket import BucketConfig, open_bucket
from worker.object_store import s3

ENDLESS = (
    "<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>{key}</Key><Size>1</Size><ETag>{etag}</ETag>"
    "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>"
)


class BucketWorld:
    """See `World`. Its pages have three objects."""

    cannot: ClassVar[Mapping[str, str]] = {}
    sure: ClassVar[bool] = True
    lists_all: ClassVar[bool] = True
    tells_moves: ClassVar[bool] = True
    foresees: ClassVar[frozenset[str]] = frozenset({"changed", "missing"})
    interval: ClassVar[float] = 60.0

    def __init__(self, ground: Ground) -> None:
        ground.patch.setattr(s3, "ATTEMPTS", 1)
        self.crawl = Crawl()
        self._server: ObjectServer = ground.servers.objects
        self._server.admit(ground.patch)
        self._bucket = self._server.bucket()
        self._texts: dict[str, str] = {}
        ground.stack.callback(self._server.heal)
        config = BucketConfig(
            type="bucket", url=f"s3://{self._bucket}", endpoint_url=self._server.url, confirm_after=CONFIRM
        )
        opener = self.crawl.opener(lambda: config, open_bucket)
        self.house = SyncHouse(ground.settings(), ground.connection, config, opener)

    def put(self, name: str, text: str) -> None:
        """See `World`."""
        self._server.put(self._bucket, self._key(name), text.encode())
        self._texts[name] = text

    def drop(self, name: str) -> None:
        """See `World`."""
        self._server.client.delete_object(Bucket=self._bucket, Key=self._key(name))
        del self._texts[name]

    def move(self, name: str, to: str) -> None:
        """See `World`. A bucket has no renames: it is copied and removed."""
        source = {"Bucket": self._bucket, "Key": self._key(name)}
        self._server.client.copy_object(Bucket=self._bucket, Key=self._key(to), CopySource=source)
        self._texts[to] = self._texts[name]
        self.drop(name)

    def uri(self, name: str) -> str:
        """See `World`."""
        return f"s3://{self._bucket}/{quote(self._key(name))}"

    def truth(self) -> dict[str, str]:
        """See `World`."""
        assert set(self._server.keys(self._bucket)) == {self._key(name) for name in self._texts}
        return {self.uri(name): " ".join(text.split()) for name, text in self._texts.items()}

    def downloads(self) -> int:
        """See `World`."""
        return self._server.count("GET", f"/{self._bucket}/")

    @contextmanager
    def away(self) -> Iterator[None]:
        """See `World`."""
        self._server.fail("GET", self._bucket, 503, "SlowDown", times=10**9)
        yield
        self._server.heal()

    @contextmanager
    def gap(self, name: str) -> Iterator[None]:
        """See `World`: after the first object it says that there is more, but not where."""
        first = self._server.client.list_objects_v2(Bucket=self._bucket, MaxKeys=1)["Contents"][0]
        body = ENDLESS.format(key=first["Key"], etag=first["ETag"].replace('"', "&quot;"))
        self._server.answer("GET", f"/{self._bucket}?list-type=2", 200, body, times=10**9)
        yield
        self._server.heal()

    @contextmanager
    def torn(self) -> Iterator[None]:
        """See `World`: the second page fails."""
        self._server.fail("GET", "continuation-token", 500, "InternalError", times=10**9)
        yield
        self._server.heal()

    @contextmanager
    def unreadable(self, name: str) -> Iterator[None]:
        """See `World`."""
        self._server.fail("GET", f"/{self._bucket}/{self._key(name)}", 403, "AccessDenied", times=10**9)
        yield
        self._server.heal()

    def _key(self, name: str) -> str:
        return f"{name}.txt"
