"""The relations between the parts of an Office Open XML package (ISO/IEC 29500-2)."""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from pipelines.extract.office.word import member


def targets(path: Path, part: str, kind: str = "") -> dict[str, str]:
    """The parts that a part refers to, by the identity it uses for them.

    Args:
        kind: the last step of the relations' type (`slideLayout`); empty: any.
    """
    folder, name = posixpath.split(part)
    relations = member(path, posixpath.join(folder, "_rels", f"{name}.rels"))
    return {
        relation.get("Id", ""): _place(folder, relation)
        for relation in (relations if relations is not None else ())
        if relation.get("TargetMode") != "External" and _kind(relation).endswith(kind)
    }


def related(path: Path, kinds: Collection[str]) -> Iterator[str]:
    """Every part, wherever it lies, that another refers to by one of these kinds of relation."""
    with zipfile.ZipFile(path) as archive:
        files = [name for name in archive.namelist() if name.endswith(".rels")]
    for file in files:
        relations = member(path, file)
        for relation in relations if relations is not None else ():
            if relation.get("TargetMode") != "External" and _kind(relation) in kinds:
                yield _place(posixpath.dirname(posixpath.dirname(file)), relation)


def _kind(relation: Any) -> str:
    return posixpath.basename(str(relation.get("Type", "")))


def _place(folder: str, relation: Any) -> str:
    return posixpath.normpath(posixpath.join("/", folder, relation.get("Target", ""))).lstrip("/")
