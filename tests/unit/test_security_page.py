"""The page on security names tests that there are, and the files of the deployment hold what it says of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "security.md"
ROWS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| (?!---|Who|Threat)", line)]


def test_every_threat_names_a_test_that_is_there() -> None:
    assert len(ROWS) > 30
    for row in ROWS:
        named = re.findall(r"`(\w+)::(\w+)`", row)
        assert named, row
        for module, test in named:
            (path,) = ROOT.glob(f"tests/*/{module}.py")
            assert re.search(rf"^def {test}\(", path.read_text(encoding="utf-8"), re.MULTILINE), f"{module}::{test}"


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
