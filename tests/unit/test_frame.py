"""The files around the code (locks, Makefile, deploy, demo) agree with the code and with each other."""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil
import subprocess
import tomllib
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from worker.settings import PREFIX, Settings

ROOT = Path(__file__).resolve().parents[2]
DROP = ROOT / "demo" / "drop"
LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-boot.lock")
DEPLOY = tuple(path for path in sorted((ROOT / "deploy").rglob("*")) if path.is_file())
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("linux", "darwin")
QUESTIONS = tomllib.loads((ROOT / "demo" / "questions.toml").read_text(encoding="utf-8"))
IDENTIFIER = re.compile(r"\b(?:E-\d{4}|\d{4}-[A-Z])\b")


@functools.cache
def pinned(lock: str) -> dict[str, list[tuple[Requirement, str]]]:
    """The entries of a lock by canonical name, with their hash options; several where Pythons differ."""
    found: dict[str, list[tuple[Requirement, str]]] = {}
    text = (ROOT / lock).read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith((" ", "#")):
            requirement, *hashes = re.split(r"\s+(?=--hash=)", line.strip(), maxsplit=1)
            parsed = Requirement(requirement)
            found.setdefault(canonicalize_name(parsed.name), []).append((parsed, "".join(hashes)))
    return found


def versions(lock: str, name: str, python: str, platform: str) -> list[Version]:
    """What a lock pins a package to for one Python on one platform: one version, or none."""
    environment = {"python_version": python, "python_full_version": f"{python}.1", "sys_platform": platform}
    return [
        Version(specifier.version)
        for requirement, _ in pinned(lock).get(canonicalize_name(name), [])
        for specifier in requirement.specifier
        if requirement.marker is None or requirement.marker.evaluate(environment)
    ]


def project() -> dict[str, Any]:
    """`pyproject.toml`, parsed."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def wanted(lock: str) -> list[str]:
    """What `pyproject.toml` asks for, as far as that lock is to hold it."""
    data = project()
    asked: dict[str, list[str]] = {
        "requirements.lock": data["project"]["dependencies"],
        "requirements-dev.lock": data["dependency-groups"]["dev"],
        "requirements-boot.lock": data["build-system"]["requires"],
    }
    return asked[lock]


def own_files() -> list[Path]:
    """The files that are or would be committed."""
    git = shutil.which("git")
    if git and (ROOT / ".git").exists():
        listed = subprocess.run(
            [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        ).stdout.decode()
        return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    kept = [p for p in ROOT.iterdir() if p.name not in {".git", ".venv"} and not p.name.startswith(".")]
    return [f for p in kept for f in (p.rglob("*") if p.is_dir() else [p]) if f.is_file()]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_is_pinned_and_hashed(lock: str) -> None:
    assert pinned(lock)
    for requirement, hashes in itertools.chain.from_iterable(pinned(lock).values()):
        assert [s.operator for s in requirement.specifier] == ["=="], requirement
        assert re.fullmatch(r"(--hash=sha256:[0-9a-f]{64}\s*)+", hashes), requirement


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_depends_on_where_packages_come_from(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert not re.search(r"https?:|file:|^-|--(extra-)?index|--find-links|(?<![\w.])/\w", text, re.MULTILINE)


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", LOCKS)
def test_lock_satisfies_what_pyproject_asks_for(lock: str, python: str, platform: str) -> None:
    for text in wanted(lock):
        requirement = Requirement(text)
        (version,) = versions(lock, requirement.name, python, platform)
        assert requirement.specifier.contains(version), text


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("python", PYTHONS)
def test_locks_agree_on_the_packages_they_share(python: str, platform: str) -> None:
    for name in pinned("requirements.lock"):
        for other in LOCKS[1:]:
            if name in pinned(other):
                expected = versions("requirements.lock", name, python, platform)
                assert versions(other, name, python, platform) == expected, name


def test_python_range_is_the_same_everywhere() -> None:
    assert project()["project"]["requires-python"] == ">=3.11,<3.15"
    assert "(3, 11) <= sys.version_info[:2] < (3, 15)" in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path",
    [*DEPLOY, ROOT / "docker-compose.yml", ROOT / "Makefile", ROOT / ".ci" / "run"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_every_setting_named_is_one(path: Path) -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    named = set(re.findall(r"\bGRISTMILL_[A-Z_]+\b", path.read_text(encoding="utf-8")))
    assert named <= known


@pytest.mark.parametrize("path", [*DEPLOY, ROOT / "docker-compose.yml"], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_default_secret(path: Path) -> None:
    for line in path.read_text(encoding="utf-8").splitlines():
        secret = re.search(r"\w*(?:PASSWORD|API_KEY|SECRET|TOKEN)\w*[ \t]*[:=][ \t]*(?P<value>[^\s`]*)", line)
        assert secret is None or secret["value"] in {"", '"$$VALKEY_PASSWORD\\""'} or ":?" in line, line
        assert not re.search(r"\$\{\w*PASSWORD\w*(:?-|\})", line), line
        credentials = re.search(r"\w+://[^\s/@]*:(?P<password>[^\s/@]+)@", line)
        assert credentials is None or credentials["password"].startswith("${"), line


def test_compose_file_is_what_the_readme_says() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    services = compose["services"]
    assert set(services) == {"postgres", "valkey", "migrate", "worker", "watcher", "http"}
    for name, service in services.items():
        ports = service.get("ports", [])
        assert ports == (["127.0.0.1:8765:8765"] if name == "http" else []), f"{name} publishes a port"
        assert service["restart"] in {"unless-stopped", "on-failure:5"}, name
        for volume in service.get("volumes", []):
            if isinstance(volume, str):
                assert volume.split(":")[0] in compose["volumes"], name
            else:
                assert (volume["target"], volume["read_only"]) == ("/drop", True)
    for name in ("postgres", "valkey"):
        assert services[name]["healthcheck"]["test"]
    for name in ("worker", "watcher", "http"):
        assert services[name]["command"] == ["up", "--only", name]
        assert services[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
        assert services[name]["environment"]["GRISTMILL_HOME"] == "/var/lib/gristmill"
        assert services[name]["stop_grace_period"]
        assert (ROOT / services[name]["build"]["dockerfile"]).is_file()


def test_image_runs_as_a_plain_user_with_hashed_packages() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK .*\"gristmill\", \"doctor\"", text, re.MULTILINE)
    commands = text.replace("\\\n", " ").replace("&&", "\n")
    installs = re.findall(r"pip install .*", commands)
    assert len(installs) == 3
    for install in installs:
        assert "--require-hashes" in install or "--no-deps --no-build-isolation" in install, install
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for source in sources.split():
            assert f"!{source}" in ignored, f"{source} is copied but not sent to the builder"


def test_compose_and_image_agree_on_the_user() -> None:
    image = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    (uid,) = set(re.findall(r"--uid (\d+)", image))
    assert f"uid={uid},gid={uid}" in (ROOT / "docker-compose.yml").read_text(encoding="utf-8")


def test_no_package_registry_is_named() -> None:
    hosts = [
        stem + "." + top
        for stem, top in [
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("registry.npmjs", "org"),
            ("npmjs", "com"),
            ("deb.debian", "org"),
            ("archive.ubuntu", "com"),
            ("docker", "io"),
            ("ghcr", "io"),
            ("quay", "io"),
            ("gcr", "io"),
            ("mcr.microsoft", "com"),
            ("public.ecr", "aws"),
            ("crates", "io"),
            ("proxy.golang", "org"),
        ]
    ]
    pattern = re.compile(b"|".join(re.escape(host.encode()) for host in hosts))
    guilty = [str(path.relative_to(ROOT)) for path in own_files() if pattern.search(path.read_bytes())]
    assert guilty == []


def test_scripts_can_be_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    for shell, script in (("bash", ".ci/run"), ("sh", "deploy/install-tesseract.sh")):
        program = shutil.which(shell)
        assert program
        subprocess.run([program, "-n", str(ROOT / script)], check=True)


def test_licence_is_the_whole_apache_2_text() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.split()[:5] == ["Apache", "License", "Version", "2.0,", "January"]
    assert "9. Accepting Warranty or Additional Liability." in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_demo_asks_five_questions_of_documents_that_exist() -> None:
    questions = QUESTIONS["question"]
    assert [question["kind"] for question in questions] == ["code", "code", "sku", "paraphrase", "paraphrase"]
    assert {question["language"] for question in questions} == {"english", "french"}
    for question in questions:
        assert (DROP / question["expect"]).is_file()
        assert question["within"] == (3 if question["kind"] == "paraphrase" else 1)


def test_sample_set_is_a_small_dozen() -> None:
    files = list(DROP.iterdir())
    assert len(files) == 12
    assert sum(path.stat().st_size for path in files) < 1_500_000
    assert {path.suffix for path in files} == {
        ".pdf",
        ".xlsx",
        ".docx",
        ".odt",
        ".html",
        ".txt",
        ".md",
        ".eml",
    }


def sample_texts() -> dict[str, str]:
    """The text of every sample document, built ones from their source."""
    built = {
        "error-codes.pdf": "error-codes.md",
        "bulletin-24-07-scan.pdf": "bulletin.md",
        "price-list.xlsx": "prices.csv",
        "handbook.docx": "handbook.md",
        "contrat-entretien.odt": "contrat.md",
        "notes-visite.txt": "notes-visite.txt",
    }
    texts = {name: (ROOT / "demo" / "source" / source).read_text(encoding="utf-8") for name, source in built.items()}
    for path in DROP.iterdir():
        if path.name not in texts:
            texts[path.name] = path.read_text(encoding="utf-8")
    return texts


def test_an_asked_identifier_is_in_its_document_only_and_has_near_twins() -> None:
    texts = sample_texts()
    everything = set(IDENTIFIER.findall(" ".join(texts.values())))
    for question in QUESTIONS["question"]:
        for asked in IDENTIFIER.findall(question["ask"]):
            assert [name for name, text in texts.items() if asked in text] == [question["expect"]]
            twins = [other for other in everything if sum(a != b for a, b in zip(asked, other, strict=True)) == 1]
            assert len(twins) >= 2, asked


STOP_WORDS = {
    "english": {"how", "do", "i", "every"},
    "french": {"ai", "je", "le", "de", "d", "la"},
}


def test_a_paraphrase_shares_no_content_word_with_its_answer() -> None:
    texts = sample_texts()
    for question in QUESTIONS["question"]:
        if question["kind"] == "paraphrase":
            words = set(re.findall(r"\w+", question["ask"].lower())) - STOP_WORDS[question["language"]]
            assert len(words) >= 3
            # Four letters are enough to catch "pay" in "payment" and "change" in "changed".
            answer = {word[:4] for word in re.findall(r"\w+", texts[question["expect"]].lower())}
            assert {word for word in words if word[:4] in answer} == set()


def test_the_live_edit_brings_something_new() -> None:
    edit = QUESTIONS["edit"]
    assert edit["marker"] in edit["append"]
    assert edit["marker"] in edit["ask"]
    assert edit["expect"] == edit["file"]
    assert not any(edit["marker"] in text for text in sample_texts().values())
    assert (DROP / edit["file"]).is_file()


def test_the_scan_has_no_text_layer_and_the_manual_has_one() -> None:
    for name, has_text in (("bulletin-24-07-scan.pdf", False), ("error-codes.pdf", True)):
        document = pypdfium2.PdfDocument(DROP / name)
        texts = [page.get_textpage().get_text_range() for page in document]
        document.close()
        assert all(bool(text.strip()) is has_text for text in texts), name
        assert has_text is ("E-4012" in " ".join(texts)), name


def test_notes_are_in_a_legacy_charset_and_the_mail_parses() -> None:
    data = (DROP / "notes-visite.txt").read_bytes()
    with pytest.raises(UnicodeDecodeError):
        data.decode("utf-8")
    assert "un œil sévère" in data.decode("cp1252")
    mail = message_from_bytes((DROP / "wrong-seal.eml").read_bytes(), policy=policy.default)
    assert mail["from"].addresses[0].domain == "peake-dairy.example"
    assert "8842-C" in mail.get_content()
