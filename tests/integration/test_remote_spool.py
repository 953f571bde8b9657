"""The spool in an object store: several machines, a store that fails, and what is removed when."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

from pipelines.errors import ConfigurationError, PermanentError, RetryableError, UnavailableError
from tests.fakes.http_service import client_of
from tests.fakes.object_server import PAGE, ObjectServer, serving_objects
from worker import doctor, housekeeping, remote_spool
from worker.content import content_of, open_spool
from worker.embedded import Services
from worker.ledger import Ledger
from worker.object_store import s3
from worker.receivers.app import create_http_app
from worker.remote_spool import close_remote_spools
from worker.settings import Settings
from worker.spool import KEEP_SECONDS, Spool, Spooled


@pytest.fixture(scope="module")
def _server() -> Iterator[ObjectServer]:
    with serving_objects() as server:
        yield server


@pytest.fixture
def server(_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    monkeypatch.setattr(s3, "ATTEMPTS", 1)
    _server.admit(monkeypatch)
    yield _server
    _server.heal()
    close_remote_spools()


@pytest.fixture
def bucket(server: ObjectServer) -> str:
    return server.bucket()


Machine = Callable[[str], Settings]


@pytest.fixture
def machine(server: ObjectServer, bucket: str, tmp_path: Path) -> Machine:
    """Settings of one of several machines, by its name."""

    def settings(name: str) -> Settings:
        return Settings(
            home=tmp_path / name, spool_url=f"s3://{bucket}/spool", s3_endpoint_url=server.url, max_bytes=100_000_000
        )

    return settings


@pytest.fixture
def here(machine: Machine) -> Spool:
    return open_spool(machine("here"))


@pytest.fixture
def there(machine: Machine) -> Spool:
    return open_spool(machine("there"))


def key(spooled: Spooled) -> str:
    return f"spool/{spooled.name[:2]}/{spooled.name}"


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def later() -> float:
    return time.time() + KEEP_SECONDS + 60


# --- several machines ------------------------------------------------------------------------------------------


def test_what_one_machine_takes_in_another_one_reads(
    server: ObjectServer, bucket: str, here: Spool, there: Spool, database: Connection[Any], machine: Machine
) -> None:
    spooled = here.put(b"hello", "a.TXT")
    assert server.keys(bucket) == [key(spooled)], "as in a local spool"
    Ledger(database).record("upload:1", kind="upload", location=spooled.name, filename="a.txt")
    claim = Ledger(database).claim()
    assert claim is not None
    with content_of(claim, machine("there")) as content:
        assert content.path.read_bytes() == b"hello"
        assert content.path.is_relative_to(machine("there").home)
    assert there.path(spooled.name) == content.path
    here.path(spooled.name)
    assert server.count("GET", spooled.name) == 1, "only there, and only once"


def test_a_large_file_goes_in_parts(
    server: ObjectServer, bucket: str, here: Spool, there: Spool, tmp_path: Path
) -> None:
    (tmp_path / "big.bin").write_bytes(os.urandom(2 * s3.PART_BYTES + 1))
    spooled = here.copy(tmp_path / "big.bin", "big.bin")
    assert server.count("PUT", "partNumber") == 3
    assert there.path(spooled.name).read_bytes() == (tmp_path / "big.bin").read_bytes()


def test_the_same_bytes_are_uploaded_once(
    server: ObjectServer, here: Spool, there: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spooled = here.put(b"once", "a.txt")
    there.put(b"once", "b.txt")
    assert server.count("PUT", spooled.name) == 1
    monkeypatch.setattr(remote_spool, "FRESH_SECONDS", -1.0)
    there.put(b"once", "b.txt")
    assert server.count("PUT", spooled.name) == 2, "an old one may be about to be swept, a new one is not"


def test_many_may_ask_at_once(server: ObjectServer, bucket: str, here: Spool, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    spooled = here.put(content, "a.bin")
    stores = [s3.S3Store(f"s3://{bucket}/spool", endpoint_url=server.url, **NOTHING) for _ in range(2)]
    cache = tmp_path / "there" / "cached"
    spools = [remote_spool.RemoteSpool(store, "s3:", cache) for store in stores]  # as in two processes
    with ThreadPoolExecutor(6) as pool:
        paths = set(pool.map(lambda number: spools[number % 2].path(spooled.name), range(6)))
    assert [path.read_bytes() == content for path in paths] == [True]
    assert files(cache) == list(paths), "no part is left"
    for store in stores:
        store.close()


NOTHING: Any = {"key": None, "secret": None, "region": None, "anonymous": False}


def test_a_child_has_connections_of_its_own(server: ObjectServer, machine: Machine) -> None:
    """As in a prefork worker; and at the end nobody complains of sessions that were left open."""
    program = f"""
import os
from pathlib import Path
from worker.content import open_spool
from worker.settings import Settings
settings = Settings(home=Path({str(machine("x").home)!r}), spool_url={machine("x").spool_url!r},
                    s3_endpoint_url={server.url!r})
name = open_spool(settings).put(b"forked", "a.txt").name
open_spool(settings).path(name).unlink()
child = os.fork()
if not child:
    code = 1
    try:
        code = 0 if open_spool(settings).path(name).read_bytes() == b"forked" else 2
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert open_spool(settings).put(b"parent", "a.txt").size == 6
"""
    arguments = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", program]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# --- a store that fails ----------------------------------------------------------------------------------------


def test_what_is_gone_is_no_file(here: Spool) -> None:
    assert not here.path("0" * 64 + ".txt").exists()


def test_damage_is_noticed(server: ObjectServer, bucket: str, here: Spool, there: Spool, tmp_path: Path) -> None:
    spooled = here.put(b"hello", "a.txt")
    server.put(bucket, key(spooled), b"HELLO")
    with pytest.raises(RetryableError, match="another content") as caught:
        there.path(spooled.name)
    assert caught.value.code == "spool_damaged"
    assert files(tmp_path / "there") == []


def test_a_download_that_is_cut_leaves_nothing(server: ObjectServer, here: Spool, there: Spool, tmp_path: Path) -> None:
    spooled = here.put(b"x" * 1000, "a.txt")
    server.cut("GET", spooled.name)
    with pytest.raises(UnavailableError, match="broke off"):
        there.path(spooled.name)
    assert files(tmp_path / "there") == []
    assert there.path(spooled.name).stat().st_size == 1000


@pytest.mark.parametrize(
    ("status", "code"), [(503, "SlowDown"), (500, "InternalError"), (403, "AccessDenied"), (404, "NoSuchBucket")]
)
def test_no_document_is_to_blame_for_the_store(
    server: ObjectServer, here: Spool, tmp_path: Path, status: int, code: str
) -> None:
    server.fail("PUT", "/spool/", status, code)
    with pytest.raises(UnavailableError, match="the spool cannot be used") as caught:
        here.put(b"hello", "a.txt")
    assert caught.value.code == "spool_unavailable"
    assert caught.value.remedy
    assert files(tmp_path / "here") == []


def test_callers_are_asked_to_come_back(
    server: ObjectServer, bucket: str, machine: Machine, services: Services, dsn: str
) -> None:
    settings = machine("here")
    with client_of(create_http_app(settings, Services(dsn, services.broker_url))) as client:
        server.fail("PUT", "/spool/", 503, "SlowDown", headers={"Retry-After": "9"}, times=2)
        for answer in (
            client.post("/ingest/text", json={"content": "hello"}),
            client.post("/ingest/file", files={"f": ("a.txt", b"hello")}),
        ):
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "9"), answer.text
            assert answer.json()["code"] == "spool_unavailable"
            assert server.keys(bucket) == []
            assert files(settings.home / "spool") == []
        answer = client.post("/ingest/file", files={"f": ("a.txt", b"hello")})
        assert answer.status_code == 202
    assert len(server.keys(bucket)) == 1


def test_the_doctor_writes_reads_and_removes(server: ObjectServer, bucket: str, machine: Machine) -> None:
    settings = machine("here")
    assert [(one.name, one.ok) for one in doctor._spool(settings)] == [("spool", True)]
    assert server.keys(bucket) == files(settings.home) == []
    server.fail("PUT", "/spool/", 403, "InvalidAccessKeyId")
    with pytest.raises(UnavailableError, match="InvalidAccessKeyId"):
        list(doctor._spool(settings))
    assert list(doctor._spool(Settings(home=settings.home))) == []
    with pytest.raises(ConfigurationError, match="Protocol not known"):
        open_spool(Settings(home=settings.home, spool_url="nonsense://x"))
    with pytest.raises(PermanentError):
        open_spool(settings).path("../x")


# --- what is removed -------------------------------------------------------------------------------------------


def test_only_what_is_ours_old_and_not_needed_is_removed(
    server: ObjectServer, bucket: str, here: Spool, database: Connection[Any]
) -> None:
    needed, *orphans = (here.put(bytes([number]), "a.txt") for number in range(2 * PAGE))
    Ledger(database).record("upload:1", kind="upload", location=needed.name)
    foreign = ["spool/readme.txt", f"spool/zz/{orphans[0].name}", f"spool/{orphans[0].name}", "else/" + orphans[0].name]
    for one in foreign:
        server.put(bucket, one)
    assert here.sweep(database) == 0, "all are young"
    assert here.sweep(database, now=later()) == len(orphans)
    assert sorted(server.keys(bucket)) == sorted([*foreign, key(needed)])


def test_what_is_kept_anew_during_a_sweep_stays(
    server: ObjectServer, bucket: str, here: Spool, database: Connection[Any]
) -> None:
    """Somebody sends the very bytes of an old orphan between its listing and its removal."""
    spooled = here.put(b"again", "a.txt")
    old = f"<Key>{key(spooled)}</Key><Size>5</Size><LastModified>2020-01-01T00:00:00.000Z</LastModified>"
    listing = f"<IsTruncated>false</IsTruncated><Contents>{old}</Contents>"
    server.answer("GET", f"/{bucket}?list-type", 200, f"<ListBucketResult>{listing}</ListBucketResult>")
    assert here.sweep(database, now=time.time()) == 0
    assert server.keys(bucket) == [key(spooled)]


def test_a_store_is_listed_once_an_hour(
    server: ObjectServer, bucket: str, here: Spool, database: Connection[Any]
) -> None:
    for _ in range(3):
        here.sweep(database)
    assert server.count("GET", f"/{bucket}?list-type") == 1


def test_housekeeping_outlives_a_store_that_is_away(
    server: ObjectServer, bucket: str, machine: Machine, database: Connection[Any]
) -> None:
    server.fail("GET", f"/{bucket}?list-type", 503, "SlowDown")
    assert housekeeping.sweep_spool(database, machine("here")) == 0
    assert server.count("GET", f"/{bucket}?list-type") == 1


def test_the_cache_loses_what_nobody_used_for_an_hour(
    server: ObjectServer, here: Spool, database: Connection[Any], tmp_path: Path
) -> None:
    used, unused = here.put(b"used", "a.txt"), here.put(b"unused", "a.txt")
    for one in (used, unused):
        Ledger(database).record(f"upload:{one.name}", kind="upload", location=one.name)
        os.utime(here.path(one.name), (0, 0))
    here.path(used.name)
    here.sweep(database)
    assert [path.name for path in files(tmp_path / "here")] == [used.name]
    assert here.path(unused.name).read_bytes() == b"unused"


def test_a_machine_without_housekeeping_loses_it_when_it_fills_its_cache(
    here: Spool, machine: Machine, tmp_path: Path
) -> None:
    first, second = here.put(b"first", "a.txt"), here.put(b"second", "a.txt")
    os.utime(open_spool(machine("there")).path(first.name), (0, 0))
    close_remote_spools()  # as in another process, which does not know when it was last done
    open_spool(machine("there")).path(second.name)
    assert [path.name for path in files(tmp_path / "there")] == [second.name]


def test_a_local_spool_moves_into_the_store(
    server: ObjectServer, bucket: str, machine: Machine, database: Connection[Any]
) -> None:
    """An installation that gets a second machine."""
    settings = machine("here")
    local = Spool(settings.home / "spool", max_bytes=100)
    needed, orphan = local.put(b"needed", "a.txt"), local.put(b"orphan", "a.txt")
    Ledger(database).record("upload:1", kind="upload", location=needed.name)
    spool = open_spool(settings)
    assert spool.path(needed.name).read_bytes() == b"needed", "it is read where it is until then"
    assert spool.sweep(database, now=later()) == 1
    assert server.keys(bucket) == [key(needed)]
    assert files(settings.home) == []
    assert spool.path(needed.name).read_bytes() == b"needed"
    assert not spool.path(orphan.name).exists()
