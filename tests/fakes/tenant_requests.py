"""Requests of tenants that all have much the same, made up to reach what is another's: one maker an endpoint."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection

CANARIES = {"acme": "zqxkacme", "bolt": "zqxkbolt", "default": "zqxkdflt"}
"""A word of each tenant's, in all that is its own and nowhere else; of one length, so that all vectors are the same."""
URIS = tuple(f"crm:{letter}" for letter in "abcdef")
SECRET = "a-secret-of-webhooks"


@dataclass
class Caller:
    """Who asks: headers that make the caller act for a tenant."""

    tenant: str
    headers: dict[str, str]

    @property
    def canary(self) -> str:
        return CANARIES[self.tenant]


@dataclass
class World:
    """What there is, by tenant."""

    rng: random.Random
    sources: dict[str, list[int]] = field(default_factory=dict)
    rows: dict[str, list[int]] = field(default_factory=dict)

    def look(self, database: Connection[Any]) -> None:
        for tenant in CANARIES:
            for kept, query in (
                (self.sources, "select id from sources where tenant = %s order by id"),
                (self.rows, "select id from documents where tenant = %s order by source_id nulls first, id"),
            ):
                kept[tenant] = [row[0] for row in database.execute(query.encode(), (tenant,)).fetchall()]

    def other(self, caller: Caller) -> str:
        return self.rng.choice([tenant for tenant in CANARIES if tenant != caller.tenant])

    def number(self, kept: dict[str, list[int]], caller: Caller) -> int:
        """Mostly another's, sometimes one's own."""
        tenant = caller.tenant if self.rng.random() < 0.25 else self.other(caller)
        return self.rng.choice(kept[tenant] or [1])


@dataclass
class Sent:
    """A request."""

    method: str
    path: str
    params: list[tuple[str, str]] = field(default_factory=list)
    json: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None


Make = Callable[[Caller, World], Sent]
FUZZED: dict[tuple[str, str], Make] = {}
"""By method and path."""

READS = frozenset(
    {
        ("POST", "/search"),
        ("GET", "/sources"),
        ("GET", "/sources/{id}"),
        ("GET", "/rest/v1/documents"),
        ("POST", "/rest/v1/rpc/{name}"),
    }
)
"""Those that show most."""


def sends(method: str, path: str) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        FUZZED[method, path] = make
        return make

    return register


# --- what is sent ----------------------------------------------------------------------------------------------


def _filter(who: Caller, world: World) -> dict[str, Any]:
    other = world.other(who)
    return world.rng.choice(
        [
            {},
            {"tenant": other},
            {"canary": CANARIES[other]},
            {"canary": who.canary},
            {"uri": world.rng.choice(URIS)},
            {"source_id": world.number(world.sources, who)},
        ]
    )


def _question(who: Caller, world: World) -> str:
    other = CANARIES[world.other(who)]
    return world.rng.choice(
        [f"the pump of {other}", other, f'"{other}"', "E-4711", "pump -may", who.canary, "When is the pump serviced?"]
    )


@sends("POST", "/search")
def _search(who: Caller, world: World) -> Sent:
    rng = world.rng
    body: dict[str, Any] = {"query": _question(who, world), "mode": rng.choice(["hybrid", "keyword", "vector", "auto"])}
    more = {
        "filter": _filter(who, world),
        "sources": [world.number(world.sources, who) for _ in range(3)],
        "neighbours": rng.choice([0, 1, 5]),
        "highlight": rng.random() < 0.5,
        "k": rng.choice([1, 10, 1000]),
        "alpha": rng.random(),
        "rrf_k": rng.choice([1, 60]),
        "since": "2020-01-01T00:00:00",
        "language": rng.choice(["english", "french"]),
    }
    return Sent("POST", "/search", json=body | dict(rng.sample(list(more.items()), rng.randint(0, 4))))


@sends("POST", "/ingest/text")
def _text(who: Caller, world: World) -> Sent:
    rng = world.rng
    body = {"content": f"The pump E-4711 of {who.canary} is serviced in May.", "uri": rng.choice(URIS)}
    body |= rng.choice([{}, {"callback_url": "http://a.example/"}, {"title": f"of {who.canary}"}])
    if rng.random() < 0.4:  # the same request, with the same key, of every tenant
        body = {"content": "A text that all of them have.", "uri": "crm:shared"}
    headers = rng.choice([{}, {"Idempotency-Key": rng.choice("12")}])
    return Sent("POST", "/ingest/text", json=body, headers=headers)


@sends("POST", "/ingest/url")
def _url(who: Caller, world: World) -> Sent:
    body = {"url": "http://127.0.0.1:1/a", "uri": world.rng.choice(URIS), "metadata": {"canary": who.canary}}
    return Sent("POST", "/ingest/url", json=body)


@sends("POST", "/ingest/file")
def _file(who: Caller, world: World) -> Sent:
    content = world.rng.choice([b"Bytes that all of them have.", f"Bytes of {who.canary}.".encode()])
    return Sent("POST", "/ingest/file", [("filename", "a.txt")], content=content)


@sends("PUT", "/sources")
def _put(who: Caller, world: World) -> Sent:
    content = f"The pump E-4711 of {who.canary} has a valve.".encode()
    return Sent("PUT", "/sources", [("uri", world.rng.choice(URIS)), ("filename", "a.txt")], content=content)


@sends("GET", "/sources")
def _list(who: Caller, world: World) -> Sent:
    rng = world.rng
    params = [("id", str(world.number(world.sources, who))) for _ in range(rng.choice([0, 3]))]
    params += rng.choice([[], [("state", rng.choice(["done", "failed", "pending", "deleted"]))]])
    params += rng.choice([[], [("uri", rng.choice(URIS))], [("after", str(world.number(world.sources, who)))]])
    return Sent("GET", "/sources", params)


@sends("GET", "/sources/{id}")
def _read(who: Caller, world: World) -> Sent:
    return Sent("GET", f"/sources/{world.number(world.sources, who)}")


@sends("GET", "/sources/{id}/pages")
def _pages(who: Caller, world: World) -> Sent:
    return Sent("GET", f"/sources/{world.number(world.sources, who)}/pages")


def _leave(world: World) -> list[tuple[str, str]]:
    return world.rng.choice([[], [("erase", "true")], [("erase", "true"), ("keep_out", "true")]])


@sends("DELETE", "/sources/{id}")
def _delete(who: Caller, world: World) -> Sent:
    return Sent("DELETE", f"/sources/{world.number(world.sources, who)}", _leave(world))


@sends("DELETE", "/sources")
def _delete_uri(who: Caller, world: World) -> Sent:
    return Sent("DELETE", "/sources", [("uri", world.rng.choice([*URIS, "signed"])), *_leave(world)])


@sends("POST", "/sources/{id}/retry")
def _retry(who: Caller, world: World) -> Sent:
    return Sent("POST", f"/sources/{world.number(world.sources, who)}/retry")


@sends("POST", "/sources/retry")
def _retry_all(who: Caller, world: World) -> Sent:
    return Sent("POST", "/sources/retry", world.rng.choice([[], [("state", "failed")]]))


@sends("GET", "/syncs")
def _syncs(who: Caller, world: World) -> Sent:
    return Sent("GET", "/syncs")


@sends("GET", "/syncs/{name}")
def _sync(who: Caller, world: World) -> Sent:
    return Sent("GET", "/syncs/wiki")


@sends("POST", "/syncs/{name}")
def _run(who: Caller, world: World) -> Sent:
    return Sent("POST", "/syncs/wiki", json=world.rng.choice([{}, {"full": True}, {"items": ["crm:a"]}]))


@sends("GET", "/status")
def _status(who: Caller, world: World) -> Sent:
    return Sent("GET", "/status")


@sends("POST", "/webhooks/{name}")
def _deliver(who: Caller, world: World) -> Sent:
    rng = world.rng
    body = {"uri": rng.choice(URIS), "text": f"A delivery for {who.canary}, {rng.random()}", "event": rng.choice("xxd")}
    return Sent("POST", f"/webhooks/{who.tenant}", json=body, headers={"Authorization": f"Bearer {SECRET}"})


def _conditions(who: Caller, world: World) -> list[tuple[str, str]]:
    rng, other = world.rng, world.other(who)
    word = CANARIES[other]
    choices = [
        ("tenant", f"eq.{other}"),
        ("tenant", f"neq.{who.tenant}"),
        ("tenant", "not.is.null"),
        ("tenant", f'in.({other},"{other}")'),
        ("tenant", f"not.eq.{who.tenant}"),
        ("or", f"(tenant.eq.{other},id.gt.0)"),
        ("not.and", f"(tenant.eq.{who.tenant})"),
        ("id", f"eq.{world.number(world.rows, who)}"),
        ("id", f"in.({world.number(world.rows, who)},{world.number(world.rows, who)})"),
        ("source_id", f"eq.{world.number(world.sources, who)}"),
        ("source_id", "is.null"),
        ("metadata->>canary", f"eq.{word}"),
        ("metadata", "cs." + json.dumps({"canary": word})),
        ("content", f"like.*{word}*"),
        ("content", f"ilike.*{word[:4]}%\\"),
        ("content", f"eq.\" or tenant = '{other}' --"),
        (f"metadata->\"a' or tenant = '{other}\"", "not.is.null"),
    ]
    return rng.sample(choices, rng.choice([1, 1, 1, 2]))


def _shape(who: Caller, world: World) -> list[tuple[str, str]]:
    choices = [
        ("select", "*"),
        ("select", "id,content,tenant,metadata"),
        ("select", "a:content,b:tenant,fts,embedding"),
        ("select", "documents(*),sources(*)"),
        ("order", "tenant.desc,id.asc"),
        ("order", "(select content from documents)"),
        ("limit", "3"),
        ("offset", "1"),
    ]
    return world.rng.sample(choices, world.rng.choice([0, 1, 2]))


@sends("GET", "/rest/v1/documents")
def _rows(who: Caller, world: World) -> Sent:
    params = _shape(who, world) + (_conditions(who, world) if world.rng.random() < 0.8 else [])
    return Sent("GET", "/rest/v1/documents", params, headers={"Prefer": "count=exact"})


@sends("POST", "/rest/v1/documents")
def _insert(who: Caller, world: World) -> Sent:
    rng = world.rng
    own = {"content": f"A row of {who.canary}, {rng.randint(1, 5)}", "metadata": {"canary": who.canary}}
    row = rng.choice(
        [
            own,
            {"content": "A row that all of them have.", "metadata": {}},
            own | {"id": world.number(world.rows, who)},
            own | {"id": world.number(world.rows, who)},
            own | {"tenant": world.other(who)},
        ]
    )
    prefer = rng.choice(["", "resolution=merge-duplicates", "resolution=ignore-duplicates"])
    headers = {"Prefer": f"return=representation,{prefer}".rstrip(",")}
    return Sent("POST", "/rest/v1/documents", rng.choice([[], [("select", "*")]]), [row], headers)


@sends("PATCH", "/rest/v1/documents")
def _change(who: Caller, world: World) -> Sent:
    rng = world.rng
    body = rng.choice(
        [
            {"metadata": {"canary": who.canary}},
            {"content": f"A changed row of {who.canary}"},
            {"language": "french"},
            {"tenant": world.other(who)},
            {"source_id": world.number(world.sources, who)},
        ]
    )
    headers = {"Prefer": "return=representation"}
    return Sent("PATCH", "/rest/v1/documents", _conditions(who, world), body, headers)


@sends("DELETE", "/rest/v1/documents")
def _remove(who: Caller, world: World) -> Sent:
    headers = {"Prefer": "return=representation"}
    return Sent("DELETE", "/rest/v1/documents", _conditions(who, world), headers=headers)


@sends("POST", "/rest/v1/rpc/{name}")
def _call(who: Caller, world: World) -> Sent:
    rng = world.rng
    name = rng.choice(["hybrid_search", "match_documents", "match_documents_hybrid", "search_documents"])
    body: dict[str, Any] = {"query_text": _question(who, world), "match_count": rng.choice([1, 10, 1000])}
    body["filter"] = _filter(who, world)
    if rng.random() < 0.5:
        body["query_embedding"] = [1.0] + [0.0] * 7
    if name == "search_documents":
        body |= rng.choice(
            [{}, {"mode": "vector"}, {"neighbours": 5}, {"sources": [world.number(world.sources, who)]}, {"pool": 1000}]
        )
        body |= rng.choice([{}, {}, {"tenant": world.other(who)}, {"pass": []}])
    if rng.random() < 0.2:
        del body["match_count"]
    params = _shape(who, world) if rng.random() < 0.5 else []
    if rng.random() < 0.3 and name == "hybrid_search":
        params += _conditions(who, world)
    return Sent("POST", f"/rest/v1/rpc/{name}", params, body)


for verb in ("GET", "POST", "PATCH", "PUT", "DELETE"):

    @sends(verb, "/rest/v1/{table:path}")
    def _table(who: Caller, world: World, verb: str = verb) -> Sent:
        table = world.rng.choice(["sources", "api_keys", "tenant_roles", "rpc/visible_tenants"])
        return Sent(verb, f"/rest/v1/{table}", [("tenant", f"eq.{world.other(who)}")], None if verb == "GET" else {})
