"""Webhook receivers as the settings describe them: what is taken, and what stops the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from pipelines.errors import ConfigurationError
from worker.receivers.json_path import JsonPath
from worker.receivers.receiver import Receiver, load_receivers, value_of
from worker.settings import Settings

CANARY = "canary-secret-value"
GOOD: dict[str, Any] = {"auth": "bearer", "secret": CANARY, "url": "$.page.url"}


def load(value: Any, name: str = "wiki") -> Receiver:
    syncs = {"docs": {"type": "notion"}}
    return load_receivers(Settings(home=Path("/nowhere"), webhooks={name: value}, syncs=syncs))[name]


def test_a_receiver() -> None:
    receiver = load(
        {
            "auth": "header",
            "secret": CANARY,
            "header": "X-Key",
            "text": "$.body",
            "uri": "$.id",
            "title": "$.title",
            "metadata": {"source": "crm", "tag": "$.tags[0]", "price": "$$5", "year": 2026},
            "delete_when": {"path": "$.event", "equals": ["deleted", "archived"]},
        }
    )
    assert (receiver.kind, receiver.content.text, receiver.header) == ("text", "$.body", "X-Key")
    assert receiver.secret == SecretStr(CANARY)
    payload = {"tags": ["a"], "event": "archived"}
    assert {key: value_of(value, payload) for key, value in receiver.metadata.items()} == {
        "source": "crm",
        "tag": "a",
        "price": "$5",
        "year": 2026,
    }
    assert receiver.delete_when is not None
    assert receiver.delete_when.holds(payload)
    assert not receiver.delete_when.holds({"event": "created"})
    assert not receiver.delete_when.holds([])


@pytest.mark.parametrize(
    ("equals", "found", "holds"),
    [(True, True, True), (True, 1, False), (0, False, False), (None, None, True), (["a", 1], 1, True), ([], [], False)],
)
def test_conditions_do_not_mix_up_types(equals: Any, found: Any, holds: bool) -> None:
    receiver = load({**GOOD, "when": {"path": "$.x", "equals": equals}})
    assert receiver.when is not None
    assert receiver.when.holds({"x": found}) is holds
    assert not receiver.when.holds({})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"auth": "basic"}, "auth"),
        ({"auth": None}, "auth"),
        ({"secret": None}, "secret"),
        ({"secret": "short"}, "8 characters"),
        ({"secret": "has a space"}, "visible ASCII"),
        ({"secret": "schlüssel-schlüssel"}, "visible ASCII"),
        ({"auth": "standard", "secret": "not base64 at all!"}, "Base64"),
        ({"url": None}, "exactly one"),
        ({"text": "$.body"}, "exactly one"),
        ({"url": "page.url"}, r"url: .*does not begin with \$"),
        ({"url": "$.pages[*].url"}, "url: .*not a JSON path"),
        ({"url": 5}, "url: .*JSON path"),
        ({"metadata": {"tag": "$..x"}}, "metadata.tag: "),
        ({"metadata": []}, "metadata"),
        ({"delete_when": {"path": "$.x"}}, "delete_when.equals"),
        ({"url": None, "text": "$.t", "delete_when": {"path": "$.x", "equals": 1}}, "delete_when needs uri"),
        ({"header": "X Key"}, "header"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"secrets": "x"}, "secrets"),
        ({"sync": "docs"}, "exactly one"),
        ({"url": None, "sync": "docs", "title": "$.title"}, "leave out"),
        ({"url": None, "sync": "docs", "metadata": {"team": "web"}}, "leave out"),
        ({"url": None, "sync": "docs", "tenant": "acme"}, "leave tenant out"),
        ({"tenant": ""}, "tenant: the name of a tenant"),
        ({"tenant": "a\nb"}, "tenant: the name of a tenant"),
        ({"url": None, "sync": "docz"}, "there is no sync 'docz'; there are: docs"),
    ],
)
def test_a_mistake_stops_the_start(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"webhook wiki: .*{says}") as caught:
        load({**GOOD, **change})
    assert caught.value.code == "invalid_webhook"
    assert CANARY not in str(caught.value)
    assert CANARY not in str(caught.value.__cause__)


@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_not_even_an_object(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="webhook wiki"):
        load(value)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "../x", "é", "a" * 65])
def test_names_that_fit_in_no_path(name: str) -> None:
    with pytest.raises(ConfigurationError, match="webhook name"):
        load(GOOD, name)


def test_notion_may_wait_for_its_handshake() -> None:
    assert load({"auth": "notion", "url": "$.entity.url"}).secret is None


def test_a_receiver_of_pushes() -> None:
    receiver = load({"auth": "notion", "sync": "docs", "when": {"path": "$.type", "equals": "page.created"}})
    assert (receiver.kind, receiver.sync) == ("sync", "docs")


def test_no_secret_is_shown() -> None:
    assert CANARY not in repr(load(GOOD))


def test_constants_are_no_paths() -> None:
    assert value_of(JsonPath.parse("$.x"), {"x": 1}) == 1
    assert value_of(JsonPath.parse("$.x"), {}) is None
    assert value_of("x", {"x": 1}) == "x"
