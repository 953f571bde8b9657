"""Writes small Microsoft compound files ([MS-CFB] version 3), for no library does."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

Tree = Mapping[str, Any]
"""Names to bytes (a stream) or to another tree (a storage)."""

_SECTOR, _MINI, _CUTOFF = 512, 64, 4096
_END, _FREE, _FAT = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD
_STORAGE, _STREAM, _ROOT = 1, 2, 5


def compound_file(tree: Tree) -> bytes:
    """The bytes of a compound file that holds the tree."""
    entries: list[list[Any]] = [["Root Entry", _ROOT, _FREE, _FREE, b""]]
    entries[0][3] = _enter(entries, tree)
    mini, mini_fat = b"", []
    sectors: list[bytes] = []
    fat: list[int] = []

    def place(content: bytes) -> int:
        if not content:
            return _END
        start = len(sectors)
        count = -(-len(content) // _SECTOR)
        padded = content.ljust(count * _SECTOR, b"\0")
        sectors.extend(padded[at : at + _SECTOR] for at in range(0, len(padded), _SECTOR))
        fat.extend([*range(start + 1, start + count), _END])
        return start

    starts = []
    for _, kind, _, _, content in entries:
        if kind == _STREAM and len(content) < _CUTOFF:
            count = -(-len(content) // _MINI)
            start = len(mini_fat)
            starts.append(start if count else _END)
            mini_fat += [*range(start + 1, start + count), _END] if count else []
            mini += content.ljust(count * _MINI, b"\0")
        else:
            starts.append(place(content) if kind == _STREAM else 0)
    starts[0] = place(mini)
    entries[0][4] = mini
    mini_start = place(struct.pack(f"<{len(mini_fat)}I", *mini_fat).ljust(-(-len(mini_fat) // 128) * _SECTOR, b"\xff"))
    directory = b"".join(_entry(entry, start) for entry, start in zip(entries, starts, strict=True))
    directory_start = place(directory.ljust(-(-len(directory) // _SECTOR) * _SECTOR, b"\0"))
    fat_count = -(-len(fat) // 127)
    fat_start = len(sectors)
    table = struct.pack(f"<{len(fat)}I", *fat) + struct.pack(f"<{fat_count}I", *[_FAT] * fat_count)
    header = struct.pack(
        "<8s16xHHHHH6xIIIIIIIII",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        0x3E, 3, 0xFFFE, 9, 6, 0, fat_count, directory_start, 0, _CUTOFF,
        mini_start, -(-len(mini_fat) // 128), _END, 0,
    )  # fmt: skip
    difat = [fat_start + number for number in range(fat_count)]
    header += struct.pack("<109I", *difat, *[_FREE] * (109 - len(difat)))
    return header + b"".join(sectors) + table.ljust(fat_count * _SECTOR, b"\xff")


def _enter(entries: list[list[Any]], tree: Tree) -> int:
    """Add a tree's entries, each the right sibling of the one before; returns the first."""
    names = sorted(tree, key=lambda name: (len(name), name.upper()))
    first, previous = _FREE, None
    for name in names:
        number = len(entries)
        inner = tree[name]
        stream = isinstance(inner, bytes)
        entries.append([name, _STREAM if stream else _STORAGE, _FREE, _FREE, inner if stream else b""])
        if previous is None:
            first = number
        else:
            entries[previous][2] = number
        previous = number
        if not stream:
            entries[number][3] = _enter(entries, inner)
    return first


def _entry(entry: list[Any], start: int) -> bytes:
    name, kind, right, child, content = entry
    coded = (name + "\0").encode("utf-16-le")
    return struct.pack("<64sHBBIII16xI8x8xIQ", coded, len(coded), kind, 1, _FREE, right, child, 0, start, len(content))
