"""What README and docs promise exists: commands, options, settings, links, examples."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from bench.__main__ import BENCHES
from docs import settings as settings_page
from worker.cli import COMMANDS, app
from worker.connectors.registry import TYPES, connector_type, load_syncs
from worker.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "deploy" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
page_by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")
COMMAND = re.compile(r"(?<!-u )(?<![\w./-])(?:\.venv/bin/)?gristmill ([a-z]+)\b([^|&;)`\n]*)")


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", text)


def spans(text: str) -> Iterator[str]:
    """What is set as code where a person would type it: shell blocks, and `code` in the prose."""
    yield from (body for language, body in FENCE.findall(text) if language == "sh")
    yield from (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(text)))


def invocations(text: str) -> set[tuple[str, tuple[str, ...]]]:
    """Every `gristmill COMMAND --option …` of a page, as command and options."""
    found = set()
    for span in spans(text):
        for name, rest in COMMAND.findall(span.replace("\\\n", " ")):
            words = shlex.split(rest, comments=True) if rest.count('"') % 2 == 0 else rest.split()
            found.add((name, tuple(word.split("=")[0] for word in words if re.match(r"--?[a-z]", word))))
    return found


def commands() -> dict[str, set[str]]:
    """The command line's own list: every command with its options."""
    group: Any = typer.main.get_command(app)
    found = {name: group.get_command(None, name) for name in COMMANDS}
    return {
        name: {
            option
            for one in (command, *getattr(command, "commands", {}).values())  # `keys` has commands of its own
            for parameter in one.params
            for option in parameter.opts
        }
        | {"--help", "-h"}
        for name, command in found.items()
    }


def slug(heading: str) -> str:
    """The anchor that a heading gets on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def test_the_settings_page_is_what_the_settings_say() -> None:
    assert settings_page.PAGE.read_text("utf-8") == settings_page.page(), "run: python -m docs.settings"


def test_every_group_of_the_settings_page_begins_with_a_setting() -> None:
    assert set(settings_page.GROUPS) <= set(Settings.model_fields)
    assert next(iter(settings_page.GROUPS)) == next(iter(Settings.model_fields))


def test_every_default_of_the_readme_is_the_real_one() -> None:
    table = (ROOT / "README.md").read_text("utf-8").partition("\n## Settings\n")[2]
    rows = re.findall(rf"^\| `{PREFIX}([A-Z_]+)` \| (.+?) \|", table, re.MULTILINE)
    assert len(rows) >= 10
    for variable, shown in rows:
        name = variable.lower()
        assert shown == (settings_page.DEFAULTS.get(name) or settings_page.default(Settings.model_fields[name]))


@page_by_page
def test_every_command_and_option_exists(page: Path) -> None:
    known = commands()
    for name, options in invocations(page.read_text("utf-8")):
        assert name in known, f"there is no command: gristmill {name}"
        assert set(options) <= known[name], f"gristmill {name}"


def test_invocations_are_found() -> None:
    text = 'Run `gristmill\nstatus`.\n```sh\npsql "$(gristmill url --tcp)" -c x\nsudo -u gristmill env x\n```\n'
    assert invocations(text) == {("status", ()), ("url", ("--tcp",))}


def test_the_readme_shows_every_command() -> None:
    shown = {name for name, _ in invocations((ROOT / "README.md").read_text("utf-8"))}
    assert shown == set(commands())


@page_by_page
def test_every_variable_is_a_setting(page: Path) -> None:
    named = set(re.findall(rf"\b{PREFIX}([A-Z]\w*)", page.read_text("utf-8")))
    assert named <= {name.upper() for name in Settings.model_fields}


@page_by_page
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(prose(page.read_text("utf-8"))):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", prose(file.read_text("utf-8")), re.MULTILINE)
            assert anchor in map(slug, headings), f"{target}#{anchor}"


@page_by_page
def test_python_examples_compile(page: Path) -> None:
    for language, body in FENCE.findall(page.read_text("utf-8")):
        if language == "python":
            compile(body, str(page), "exec")


@page_by_page
def test_every_make_target_and_measurement_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][\w/.]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for span in spans(page.read_text("utf-8")):
        assert set(re.findall(r"^make ([a-z]+)", span, re.MULTILINE)) <= targets
        assert set(re.findall(r"\bpython -m bench ([a-z]+)", span)) <= set(BENCHES)


def test_the_changelog_speaks_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"## [{version}]" in changes or (f"Version {version}" in changes and "## [Unreleased]" in changes)


@page_by_page
def test_every_sync_that_is_shown_is_one(page: Path) -> None:
    for shown in re.findall(r"GRISTMILL_SYNCS='(\{.*?\})'", page.read_text(), re.DOTALL):
        assert load_syncs(Settings(syncs=shown))


def test_every_field_of_every_sync_is_described() -> None:
    text = (ROOT / "docs" / "syncs.md").read_text()
    described = set(re.findall(r"`(\w+)`", text[text.index("## Fields") :]))
    for name in TYPES:
        assert set(connector_type(name).config.model_fields) - {"base_url"} <= described, name
