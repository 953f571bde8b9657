"""What a run of chaos does, from a seed alone: who writes, updates, renames and deletes what when, what dies when."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Channel = Literal["folder", "http", "ledger"]
Kind = Literal["write", "delete", "rename"]
Casualty = Literal["pool", "worker", "watcher", "http", "supervisor", "broker", "postgres"]

SPACING_SECONDS = 2.0
"""Least between two faults: less would only test that things start."""

FAULTS: Mapping[Casualty, int] = {
    "pool": 9,
    "worker": 3,
    "watcher": 2,
    "http": 1,
    "broker": 2,
    "postgres": 2,
    "supervisor": 1,
}

WORDS = ("pump", "valve", "motor", "seal", "gauge", "pressure", "inlet", "filter", "tank", "relay", "sensor", "repair")


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """What every passage says of itself: its document, version, and which part of how many it is."""

    document: int
    version: int
    part: int
    parts: int


_MARK = re.compile(r"\[D(\d+) v(\d+) part (\d+)/(\d+)\]")


def marks(content: str) -> list[Mark]:
    """All marks in a passage; exactly one, unless something went very wrong."""
    return [Mark(*map(int, found)) for found in _MARK.findall(content)]


def parts_of(document: int, version: int) -> int:
    """How many passages a version has: versions differ, so that one that is left over shows."""
    return 2 + (document * 7 + version * 3) % 4


def text(document: int, version: int) -> str:
    """A version of a document: Markdown, a section a passage."""
    parts = parts_of(document, version)
    rng = random.Random(document * 1000 + version)
    return "".join(
        f"# Part {part}\n\n[D{document} v{version} part {part}/{parts}] {' '.join(rng.choices(WORDS, k=60))}.\n\n"
        for part in range(1, parts + 1)
    )


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that a user does, `at` seconds after the start.

    `version` is the one that is written or deleted; `place` the name of the document afterwards, `before` the one it
    had before a rename.
    """

    at: float
    channel: Channel
    kind: Kind
    document: int
    version: int
    place: str
    before: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that dies, `at` seconds after the start or later, where the one before took its time."""

    at: float
    casualty: Casualty


@dataclass(frozen=True, slots=True)
class Expected:
    """What must be there of a document in the end: a version under a name, or (None) nothing."""

    version: int | None
    channel: Channel
    place: str


@dataclass(frozen=True)
class Plan:
    """A whole run."""

    seed: int
    operations: tuple[Operation, ...]
    faults: tuple[Fault, ...]

    def expected(self) -> dict[int, Expected]:
        """What must be there of each document when everything has been done."""
        return {
            operation.document: Expected(
                None if operation.kind == "delete" else operation.version, operation.channel, operation.place
            )
            for operation in self.operations
        }


def make_plan(
    seed: int,
    *,
    documents: int = 150,
    updated: int = 50,
    deleted: int = 20,
    renamed: int = 8,
    seconds: float = 60.0,
    faults: Mapping[Casualty, int] = FAULTS,
) -> Plan:
    """The run of a seed.

    Args:
        updated: how many documents are updated, half of them several times in a second.
        deleted: how many are deleted; a fifth of them comes back later.
        renamed: how many files of the watched folder are renamed.
        seconds: from the first operation to about the last.
    """
    rng = random.Random(seed)
    channels: list[Channel] = rng.choices(("folder", "http", "ledger"), (6, 3, 1), k=documents)
    files = [number for number, channel in enumerate(channels) if channel == "folder"]
    to_update = set(rng.sample(range(documents), updated))
    to_delete = rng.sample(range(documents), deleted)
    to_rename = set(rng.sample(files, min(renamed, len(files))))
    operations = []
    for document, channel in enumerate(channels):
        operations += _life(
            rng,
            document,
            channel,
            seconds,
            updates=rng.choice((1, 2, 3, 5)) if document in to_update else 0,
            rename=document in to_rename,
            delete=document in to_delete,
            revive=document in to_delete[: deleted // 5],
        )
    order: list[Casualty] = [casualty for casualty, count in faults.items() for _ in range(count)]
    rng.shuffle(order)
    at, dying = 2.0, []
    for casualty in order:
        at += rng.uniform(SPACING_SECONDS, SPACING_SECONDS * 1.4)
        dying.append(Fault(at, casualty))
    return Plan(seed, tuple(sorted(operations, key=lambda operation: operation.at)), tuple(dying))


def _life(
    rng: random.Random,
    document: int,
    channel: Channel,
    seconds: float,
    *,
    updates: int,
    rename: bool,
    delete: bool,
    revive: bool,
) -> list[Operation]:
    """All that happens to one document, in order."""
    born = rng.uniform(0, seconds * 0.6)
    if rng.random() < 0.5:  # an editor that saves again and again
        start = rng.uniform(born + 0.05, seconds)
        times = [start + n * rng.uniform(0.02, 0.3) for n in range(updates)]
    else:
        times = [rng.uniform(born + 0.05, seconds) for _ in range(updates)]
    events = [(at, "write") for at in times]
    if rename:
        events.append((rng.uniform(born + 0.05, seconds), "rename"))
    events.sort()
    end = events[-1][0] if events else born
    if delete:
        end = rng.uniform(end + 0.05, max(seconds, end + 1))
        events.append((end, "delete"))
    if revive:
        events.append((end + rng.uniform(0.1, 5), "write"))
    place, version = f"d{document:04}.md", 1
    life = [Operation(born, channel, "write", document, version, place)]
    for at, kind in events:
        if kind == "rename":
            life.append(Operation(at, channel, "rename", document, version, f"moved/{place}", place))
            place = f"moved/{place}"
        elif kind == "delete":
            life.append(Operation(at, channel, "delete", document, version, place))
        else:
            version += 1
            life.append(Operation(at, channel, "write", document, version, place))
    return life
