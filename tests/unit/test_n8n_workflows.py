"""The workflows of deploy/n8n hang together, as far as this shows without n8n."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from worker.receivers.fields import MOST_WAIT_SECONDS
from worker.receivers.problems import Problem
from worker.receivers.syncs import AskedRun, Sync

FOLDER = Path(__file__).parents[2] / "deploy" / "n8n"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
CREDENTIALS = {
    one["name"]: one for one in json.loads((FOLDER / "credentials" / "example.json").read_text(encoding="utf-8"))
}
ADDRESS = "http://127.0.0.1:8765"


def load(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def test_the_workflows_that_the_page_shows_are_there() -> None:
    page = (FOLDER.parents[1] / "docs" / "n8n.md").read_text(encoding="utf-8")
    assert sorted(set(re.findall(r"deploy/n8n/([a-z-]+)\.json", page))) == NAMES
    assert len(NAMES) == 7
    assert len({load(name)["id"] for name in NAMES}) == 7


@pytest.mark.parametrize("name", NAMES)
def test_a_workflow_hangs_together(name: str) -> None:
    flow = load(name)
    assert flow["settings"] == {"executionOrder": "v1"}
    assert flow["active"] is False
    nodes = {node["name"]: node for node in flow["nodes"]}
    assert len(nodes) == len(flow["nodes"]) == len({node["id"] for node in flow["nodes"]})

    targets = {
        target["node"]
        for outputs in flow["connections"].values()
        for kind in outputs.values()
        for branch in kind
        for target in branch
    }
    assert targets | set(flow["connections"]) == {n for n in nodes if n != "Note"}
    assert set(re.findall(r"\$\('([^']+)'\)", json.dumps(flow, ensure_ascii=False))) <= set(nodes)

    for node in flow["nodes"]:
        for kind, used in node.get("credentials", {}).items():
            known = CREDENTIALS[used["name"]]
            assert (known["id"], known["type"]) == (used["id"], kind)


@pytest.mark.parametrize("name", NAMES)
def test_an_address_stands_in_one_place(name: str) -> None:
    text = json.dumps(load(name))
    addresses = re.findall(r"https?://[^\"'\\ ]+", text)
    assert addresses in ([], [ADDRESS])
    assert bool(addresses) == ('"n8n-nodes-base.httpRequest"' in text)


def test_a_failed_sync_ends_in_an_error_with_its_remedy_and_no_other_does() -> None:
    flow = load("sync")
    nodes = {node["name"]: node for node in flow["nodes"]}
    failed, well = flow["connections"]["Failed?"]["main"]
    assert [nodes[branch[0]["node"]]["type"].split(".")[1] for branch in (failed, well)] == ["stopAndError", "set"]
    # What a failed run and a problem document call it; `worker.receivers` gives both.
    message = nodes["Fail"]["parameters"]["errorMessage"]
    assert all(f"$json.body.{field}" in message for field in ("cause", "detail", "notices", "remedy"))
    assert {"code", "cause", "remedy", "counts", "notices"} <= set(Sync.model_fields)
    assert {"code", "detail", "remedy"} <= set(Problem.model_fields)
    run = nodes["Run"]["parameters"]
    assert (run["method"], run["url"].split("?")[1]) == ("POST", "wait={{ $json.wait }}")
    wait = next(one for one in nodes["Settings"]["parameters"]["assignments"]["assignments"] if one["name"] == "wait")
    assert wait["value"] <= MOST_WAIT_SECONDS
    assert "items" in AskedRun.model_fields and "{ items: [$json.id] }" in run["jsonBody"]
    assert [name for name, node in nodes.items() if node.get("disabled")] == ["Page changed"]
