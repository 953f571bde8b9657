"""Fetching on somebody else's word never connects to this machine or its neighbours."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpcore
import pytest

from pipelines.errors import GristmillError, PermanentError, RetryableError
from tests.fakes.web_server import Answer, Call, Trap, trap, web_server
from worker.addresses import resolve
from worker.fetch import fetched
from worker.process import wait_for
from worker.settings import Settings

URLS = """
http://127.0.0.1:{port}/
https://127.0.0.1:{port}/
http://127.0.0.2:{port}/
http://127.255.255.254:{port}/
http://0.0.0.0:{port}/
http://0:{port}/
http://127.1:{port}/
http://127.0.1:{port}/
http://2130706433:{port}/
http://017700000001:{port}/
http://0x7f000001:{port}/
http://0x7f.1:{port}/
http://0x7f.0x0.0x0.0x1:{port}/
http://0177.0.0.1:{port}/
http://00000177.0.0.1:{port}/
http://127.0.0.1.:{port}/
http://127.000.000.001:{port}/
http://①②⑦.⓪.⓪.①:{port}/
http://１２７.０.０.１:{port}/
http://127。0。0。1:{port}/
http://127．0．0．1:{port}/
http://%31%32%37.0.0.1:{port}/
http://localhost:{port}/
http://LOCALHOST:{port}/
http://localhost.:{port}/
http://ｌｏｃａｌｈｏｓｔ:{port}/
http://[::1]:{port}/
http://[::]:{port}/
http://[0:0:0:0:0:0:0:1]:{port}/
http://[0000::1]:{port}/
http://[::127.0.0.1]:{port}/
http://[::ffff:127.0.0.1]:{port}/
http://[::ffff:7f00:1]:{port}/
http://[0:0:0:0:0:ffff:127.0.0.1]:{port}/
http://[64:ff9b::7f00:1]:{port}/
http://[2002:7f00:1::]:{port}/
http://[2001:0:4136:e378:8000:63bf:80ff:fffe]:{port}/
http://[fe80::1%25lo]:{port}/
http://[::1%25lo]:{port}/
http://user@127.0.0.1:{port}/
http://example.org@127.0.0.1:{port}/
http://example.org:80@127.0.0.1:{port}/
http://example.org\\@127.0.0.1:{port}/
http://127.0.0.1:{port}\\@example.org/
http://127.0.0.1:{port}#@example.org/
http://127.0.0.1:{port}?@example.org/
http:127.0.0.1:{port}/
http:///127.0.0.1:{port}/
//127.0.0.1:{port}/
ftp://127.0.0.1:{port}/
gopher://127.0.0.1:{port}/_GET%20/
dict://127.0.0.1:{port}/
file://127.0.0.1/etc/passwd
http://this-machine.test:{port}/
http://six.test:{port}/
http://mapped.test:{port}/
http://mixed.test:{port}/
http://scoped.test:{port}/
http://169.254.169.254/latest/meta-data/
http://metadata.test/computeMetadata/v1/
http://[fd00:ec2::254]/latest/meta-data/
http://100.100.100.200/latest/meta-data/
http://168.63.129.16/metadata/instance
http://10.0.0.1/
http://100.64.0.1/
http://192.168.0.1/
http://224.0.0.1/
http://255.255.255.255/
""".strip().splitlines()

NAMES = {
    "this-machine.test": ["127.0.0.1"],
    "six.test": ["::1"],
    "mapped.test": ["::ffff:127.0.0.1"],
    "mixed.test": ["93.184.216.34", "127.0.0.1"],
    "scoped.test": ["fe80::1%lo"],
    "metadata.test": ["169.254.169.254"],
    "open.test": ["127.0.0.1"],
}


def known(host: str, port: int) -> Sequence[str]:
    """Names of the tests, and what the system makes of `localhost`; nothing goes out to a name server."""
    if host in NAMES:
        return NAMES[host]
    assert host == "localhost", f"{host} was let through to the resolver"
    return resolve(host, port)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, fetch_seconds=20, fetch_allow=("open.test",))


@pytest.fixture
def trapped(monkeypatch: pytest.MonkeyPatch) -> Iterator[Trap]:
    """A trap, with the machine's proxies pointing at it too."""
    with trap() as found:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setitem(os.environ, name, f"http://127.0.0.1:{found.port}")
        yield found


def test_the_trap_works(trapped: Trap, settings: Settings) -> None:
    """Or the other tests would prove nothing."""
    opened = settings.model_copy(update={"fetch_allow": ("127.0.0.1",)})

    def fetch() -> None:
        with fetched(f"http://127.0.0.1:{trapped.port}/", opened):
            pass

    with ThreadPoolExecutor(1) as pool:
        fetching = pool.submit(fetch)
        # Counting hangs up, so whoever came is soon back, and the time for it need not be short.
        assert wait_for(lambda: trapped.connections() == 1, 15)
        with pytest.raises(RetryableError):
            fetching.result()
    assert trapped.connections() == 0


@pytest.mark.parametrize("url", URLS)
def test_refused(url: str, trapped: Trap, settings: Settings) -> None:
    with pytest.raises(PermanentError) as caught, fetched(url.format(port=trapped.port), settings, resolve=known):
        pass
    assert caught.value.code == "fetch_refused"
    assert trapped.connections() == 0
    assert list((settings.home / "spool").iterdir()) == []


def test_the_table_is_long_enough() -> None:
    assert len(set(URLS)) >= 40


@pytest.mark.parametrize(
    ("url", "status"),
    [*((url, 302) for url in URLS), *(("http://127.0.0.1:{port}/", status) for status in (301, 303, 307, 308))],
)
def test_refused_after_a_redirect(url: str, status: int, trapped: Trap, settings: Settings) -> None:
    location = url.format(port=trapped.port)
    if location.startswith("//"):
        location = "http:" + location

    def redirect(call: Call) -> Answer:
        return Answer(status, headers={"Location": location.encode("utf-8").decode("latin-1")})

    with web_server(redirect) as server:
        with (
            pytest.raises(GristmillError) as caught,
            fetched(f"http://open.test:{server.port}/", settings, resolve=known),
        ):
            pass
        assert caught.value.code == "fetch_refused"
        assert len(server.calls) == 1
    assert trapped.connections() == 0


def test_an_answer_of_the_resolver_that_changes(
    trapped: Trap, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public when it is checked, loopback when anybody asks again: the connection goes to what was checked."""
    answers = iter([["93.184.216.34"], *[["127.0.0.1"]] * 9])
    tried: list[str] = []

    def rebinding(host: str, port: int) -> Sequence[str]:
        assert host == "rebinding.test"
        return next(answers)

    def nobody_there(self: object, host: str, *args: object, **more: object) -> httpcore.NetworkStream:
        tried.append(host)
        raise httpcore.ConnectError("not in a test")

    url = f"http://rebinding.test:{trapped.port}/"
    with monkeypatch.context() as patched:
        patched.setattr(httpcore.SyncBackend, "connect_tcp", nobody_there)
        with pytest.raises(RetryableError), fetched(url, settings, resolve=rebinding):
            pass
    assert tried == ["93.184.216.34"]
    with pytest.raises(PermanentError, match="not on the public internet"), fetched(url, settings, resolve=rebinding):
        pass
    assert trapped.connections() == 0


def test_every_hop_is_resolved_and_checked_anew(trapped: Trap, settings: Settings) -> None:
    """A host that was fine for the first hop is not for the second."""
    answers = iter(["127.0.0.1", "169.254.169.254"])

    def rebinding(host: str, port: int) -> Sequence[str]:
        return [next(answers)]

    with web_server(lambda call: Answer(302, headers={"Location": "/again"})) as server:
        with (
            pytest.raises(PermanentError) as caught,
            fetched(f"http://open.test:{server.port}/", settings, resolve=rebinding),
        ):
            pass
        assert caught.value.code == "fetch_refused"
        assert [call.path for call in server.calls] == ["/"]
