"""The page on security names tests that there are and that see their guard taken out (`make guards`), and the files of
the deployment hold what it says of them.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.guards.__main__ import state_of
from tests.guards.guards import Edit, TableError, load_guards, node_id, without
from tests.guards.workplace import Case

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "security.md"
ROWS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| (?!---|Who|Threat)", line)]


GUARDS = load_guards()


def test_every_threat_names_tests_that_a_guard_is_taken_out_for() -> None:
    seen = {test.partition("[")[0] for guard in GUARDS for test in guard.tests}
    assert len(ROWS) > 40
    for row in ROWS:
        named = set(re.findall(r"`(\w+::\w+)`", row))
        assert named, row
        assert named <= seen, f"{row}: no guard is taken out for {named - seen}"


def test_every_guard_is_where_the_table_says_and_so_are_its_tests() -> None:
    assert len({guard.name for guard in GUARDS}) == len(GUARDS)
    for guard in GUARDS:
        assert guard.tests and guard.why, guard.name
        for file, source in without(guard, ROOT).items():
            assert source != (ROOT / file).read_text(encoding="utf-8"), guard.name
        for test in guard.tests:
            path, function = node_id(test).split("::")
            tests = (ROOT / path).read_text(encoding="utf-8")
            assert re.search(rf"^def {function.partition('[')[0]}\(", tests, re.MULTILINE), test


def test_a_guard_is_seen_only_by_a_test_that_came_to_its_own_lines() -> None:
    def states(*found: str) -> str:
        return state_of("test_a::test_b", [Case("test_a", f"test_b[{one}]", one, "") for one in found])

    assert states("passed", "failed") == "failed"
    assert states("failed", "broken") == "broken"
    assert (states("passed", "error"), states("passed", "skipped"), states()) == ("error", "passed", "not run")
    assert state_of("test_a::test_b[1]", [Case("test_a", "test_b[2]", "failed", "")]) == "not run"
    edit = Edit("worker/a.py", "if wrong:", "if False:")
    assert edit.applied("x\nif wrong:\n") == "x\nif False:\n"
    for source in ("", "if wrong: if wrong:"):
        with pytest.raises(TableError, match="times, not once"):
            edit.applied(source)


def test_containers_cannot_write_to_their_image_nor_gain_rights() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    ours = [service for service in services.values() if service["image"] == "gristmill:local"]
    assert len(ours) == 4
    for service in ours:
        assert service["read_only"] is True
        assert [mount.partition(":")[0] for mount in service["tmpfs"]] == ["/tmp", "/var/lib/gristmill"]
        assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
        assert not {"privileged", "cap_add", "pid", "network_mode", "user"} & service.keys()


def test_the_service_cannot_write_beside_its_home_nor_gain_rights() -> None:
    unit = (ROOT / "deploy" / "systemd" / "gristmill.service").read_text(encoding="utf-8").splitlines()
    wanted = {"User=gristmill", "NoNewPrivileges=yes", "CapabilityBoundingSet=", "ProtectSystem=strict", "UMask=0077"}
    assert wanted <= set(unit)


def test_the_audit_looks_at_every_lock() -> None:
    (recipe,) = re.findall(r"^audit:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert "--require-hashes" in recipe
    assert all(lock.name in recipe for lock in ROOT.glob("*.lock"))


@pytest.mark.parametrize(
    ("audit", "tests", "answer"),
    [(0, 0, 0), (2, 0, 2), (124, 0, 0), (0, 2, 1)],
    ids=["well", "known", "mute", "failed"],
)
def test_continuous_integration_looks_for_vulnerabilities(tmp_path: Path, audit: int, tests: int, answer: int) -> None:
    """What is known fails it; that nobody can be asked, or answers in time, does not. The tests are run either way."""
    make = tmp_path / "make"
    make.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n[ "$1" = test ] && exit {tests}\nexit {audit}\n')
    make.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run([ROOT / ".ci" / "run"], env=os.environ | {"PATH": path}, capture_output=True, check=False)
    assert done.returncode == answer, done.stderr
    assert (tmp_path / "asked").read_text().split() == ["audit", "test"]
