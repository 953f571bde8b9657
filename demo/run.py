"""The main job, shown: a throw-away installation mirrors a folder of real documents and answers five questions.

Everything runs as it would for a user: `gristmill up` in processes of its own with the embedded Postgres and Valkey,
files dropped into a watched folder, questions asked through Celery. Exits with 0 only if every answer is the right one.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pipelines.errors import ConfigurationError, UnavailableError
from worker.app import connect_app
from worker.database import open_database
from worker.settings import Settings, load_settings

HERE = Path(__file__).parent
DEADLINE = 180.0
console = Console()


def main() -> int:
    """Run the demonstration; 0 if all went as it should."""
    script = tomllib.loads((HERE / "questions.toml").read_text("utf-8"))
    files = sorted(path for path in (HERE / "drop").iterdir() if path.is_file())
    with tempfile.TemporaryDirectory(prefix="gristmill-demo-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)  # as root, Postgres runs as another user and has to get through
        drop = Path(name) / "drop"
        drop.mkdir()
        for variable in [v for v in os.environ if v.startswith("GRISTMILL_")]:
            del os.environ[variable]  # the demonstration has a home and settings of its own
        os.environ["GRISTMILL_HOME"] = f"{name}/home"
        os.environ["GRISTMILL_STABILITY_SECONDS"] = "1"
        os.environ["GRISTMILL_HTTP_PORT"] = "0"
        settings = load_settings(watch=(drop,))
        began = time.monotonic()
        with running(settings, drop, Path(name) / "log"):
            console.print(f"[bold]1.[/] The service is up after {time.monotonic() - began:.1f} s, home {name}/home.")
            show_model(settings)
            ok = drop_in(settings, files, drop)
            ok = ask_all(settings, script["question"]) and ok
            ok = edit_live(settings, script["edit"], drop) and ok
    console.print("[bold green]All as it should be.[/]" if ok else "[bold red]Something is not as it should be.[/]")
    return 0 if ok else 1


@contextmanager
def running(settings: Settings, drop: Path, log: Path) -> Iterator[None]:
    """`gristmill up` over a folder, for as long as the block runs."""
    command = [sys.executable, "-m", "worker.cli", "up", "--watch", str(drop)]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        with console.status("starting Postgres, Valkey, workers and watcher …"):
            until(lambda: ready(settings, process, log), "the service to start")
        yield
    except Exception:
        console.print(escape(log.read_text()[-3000:]))
        raise
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def ready(settings: Settings, process: subprocess.Popen[bytes], log: Path) -> bool:
    """Whether a worker answers; raises if the service ended instead."""
    if process.poll() is not None:
        raise RuntimeError(f"gristmill up ended with {process.returncode}; its log: {log}")
    try:
        with open_database(settings) as connection:
            if connection.execute("select to_regclass('index_models') is not null").fetchone() != (True,):
                return False
        return bool(ask(settings, "anyone there?", seconds=1) is not None)
    except (ConfigurationError, UnavailableError):
        return False


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, but not for ever."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {DEADLINE:.0f} s for {what}")
        time.sleep(0.05)


def ask(settings: Settings, query: str, *, k: int = 20, seconds: float = 20) -> list[dict[str, Any]] | None:
    """Ask as any Celery client would; None if no worker answered in time."""
    from celery.exceptions import TimeoutError as NoAnswer

    with connect_app(settings) as app:
        result = app.send_task("gristmill.search", kwargs={"query": query, "k": k})
        try:
            answer: list[dict[str, Any]] = result.get(timeout=seconds)
        except NoAnswer:
            return None
        finally:
            result.forget()
    return answer


def show_model(settings: Settings) -> None:
    """Say openly which embedding model is in use."""
    with open_database(settings) as connection:
        row = connection.execute("select model, dimensions from index_models").fetchone()
    assert row is not None
    console.print(f"   Embeddings: {row[0]}, {row[1]} dimensions. They are made on this machine, with no key.")


def drop_in(settings: Settings, files: Sequence[Path], drop: Path) -> bool:
    """Copy the sample documents into the folder and watch them become searchable."""
    console.print(f"\n[bold]2.[/] {len(files)} documents are dropped into the folder.")
    for path in files:
        shutil.copyfile(path, drop / path.name)
    columns = (TextColumn("   {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with open_database(settings) as connection, Progress(*columns, console=console) as progress:
        bar = progress.add_task("indexing", total=len(files))

        def all_settled() -> bool:
            row = connection.execute("select count(*) from sources where state in ('done','failed','dead')").fetchone()
            assert row is not None
            progress.update(bar, completed=row[0])
            return bool(row[0] >= len(files))

        until(all_settled, "all documents to be indexed")
        rows = connection.execute(
            "select s.metadata, s.uri, s.mime, s.state, s.pages, s.chunks, s.report,"
            " extract(epoch from s.searchable_at - s.event_at)::float8, s.error_cause,"
            " (select string_agg(distinct language, ', ') from documents where source_id = s.id)"
            " from sources s order by s.uri"
        ).fetchall()
    table = Table(header_style="bold")
    for column in ("document", "kind", "pages", "of them by OCR", "chunks", "language", "seconds"):
        table.add_column(column)
    for _, uri, mime, state, pages, chunks, report, seconds, cause, language in rows:
        by_ocr = sum(page["decision"] == "ocr" for page in report.get("pages", []))
        kind = (mime or "").split("/")[-1].split(".")[-1]
        shown = (uri.rsplit("/", 1)[-1], kind, pages or "", by_ocr or "", chunks or cause, language or "")
        table.add_row(*map(str, shown), f"{seconds:.1f}" if seconds is not None else state)
    console.print(table)
    return all(row[3] == "done" for row in rows)


def ask_all(settings: Settings, questions: Sequence[dict[str, Any]]) -> bool:
    """Ask the five questions; a paraphrase may be answered by the third document, a code only by the first."""
    console.print("\n[bold]3.[/] Five questions, one search each, by meaning and by exact code.")
    table = Table(header_style="bold", show_lines=True)
    for column in ("question", "", "best document", "page", "found by", "passage"):
        table.add_column(column, overflow="fold")
    ok = True
    for question in questions:
        hits = ask(settings, question["ask"]) or []
        names = list(dict.fromkeys(hit["metadata"]["filename"] for hit in hits))
        right = question["expect"] in names[: question["within"]]
        ok = ok and right
        place = names.index(question["expect"]) + 1 if question["expect"] in names else None
        hit = next((hit for hit in hits if hit["metadata"]["filename"] == question["expect"]), None)
        legs = ", ".join(f"{leg} {rank}" for leg, rank in hit["ranks"].items() if rank) if hit else ""
        table.add_row(
            f"{escape(question['ask'])}\n[dim]{question['kind']}, {question['language']}[/]",
            "[green]✓[/]" if right else "[red]✗[/]",
            f"{question['expect']}\n[dim]rank {place} of {len(names)}[/]",
            str(hit["metadata"].get("page", "")) if hit else "",
            legs,
            escape(passage(hit["content"], question["ask"])) if hit else "",
        )
    console.print(table)
    return ok


def passage(content: str, question: str) -> str:
    """The part of a chunk around the first word it shares with the question."""
    text = " ".join(content.split())
    words = sorted(question.strip("?").split(), key=lambda word: (not any(c.isdigit() for c in word), -len(word)))
    at = next((text.lower().find(w.lower()) for w in words if w.lower() in text.lower()), 0)
    begin = max(0, at - 40)
    return ("… " if begin else "") + text[begin : begin + 160] + (" …" if len(text) > begin + 160 else "")


def edit_live(settings: Settings, edit: dict[str, Any], drop: Path) -> bool:
    """Change a file while everything runs and ask for what is new in it."""
    console.print(f"\n[bold]4.[/] {edit['file']} is edited; the question: {escape(edit['ask'])}")
    before = ask(settings, edit["ask"]) or []
    with (drop / edit["file"]).open("a", encoding="utf-8") as file:
        file.write(edit["append"])
    began = time.monotonic()
    found: list[dict[str, Any]] = []

    def arrived() -> bool:
        found[:] = ask(settings, edit["ask"]) or []
        return any(edit["marker"] in hit["content"] for hit in found[: edit["within"]])

    until(arrived, "the edit to be found")
    seconds = time.monotonic() - began
    stability = settings.stability_seconds
    console.print(f"   Before: {'known' if any(edit['marker'] in h['content'] for h in before) else 'not known'}.")
    console.print(
        f"   Found {seconds:.1f} s after it was saved; {stability:.0f} s of that is waiting for a quiet file:"
    )
    console.print(f"   {escape(passage(found[0]['content'], edit['marker']))}\n")
    return bool(found[0]["metadata"]["filename"] == edit["expect"])


if __name__ == "__main__":
    sys.exit(main())
