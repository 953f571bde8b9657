"""A key that is revoked and put back under a running service, and a document that no day's budget has room for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.acceptance.conftest import Installation, until
from tests.fakes.openai_server import OpenAIServer

pytestmark = pytest.mark.timeout(600)


def test_a_revoked_key_pauses_everything_and_nothing_is_lost(install: Callable[..., Installation]) -> None:
    with OpenAIServer(dimensions=8, require_key="sk-1") as server:
        service = install(
            openai_base_url=server.base_url,
            openai_model="m",
            openai_api_key="sk-1",
            embed_tokens_per_day=10_000,
            ingest_concurrency=2,
            ocr_concurrency=1,
            sweep_seconds=0.2,
            backoff_seconds=0.2,
            backoff_cap_seconds=1,
            http_port=0,
        )
        service.start()
        server.require_key = "sk-2"
        for number in range(30):
            (service.drop / f"{number:02}.txt").write_text(f"Pump {number} leaks at its seal.")
        until(lambda: len(service.states()) == 30 and service.rows("select from pauses where strikes > 2"), "the pause")
        (pause,) = service.answer("status")["paused"]
        assert (pause["what"], pause["code"]) == ("embedding", "embedder_unauthorised")
        told = service.run("sources").stdout
        assert "paused, no document is taken until" in told
        assert "refused the key (HTTP 401)" in told
        assert "→ make the key valid again at the provider" in told
        assert service.rows("select sum(attempts) from sources where state <> 'leased'") == [(0,)]
        assert service.rows("select count(*) from sources where delays > 0")[0][0] <= 4, "the others never met it"
        server.require_key = "sk-1"
        assert set(service.settled(30).values()) == {"done"}, "by themselves"
        assert service.rows("select from pauses") == []
        assert service.rows("select count(*), count(embedding) from documents") == [(30, 30)]
        assert 30 * 5 < service.rows("select tokens from embedding_usage")[0][0] < 30 * 15
        (service.drop / "large.txt").write_text("\n\n".join(f"Paragraph {number} is new." for number in range(3_000)))
        assert service.settled(31)["large.txt"] == "failed"
        [(cause,)] = service.rows("select error_cause from sources where state = 'failed'")
        assert cause.endswith("a day's budget is 10,000")
        assert service.stop() == 0
