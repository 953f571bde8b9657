"""What was packed with gzip or zlib, unpacked as it comes, however much it unpacks to."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

PIECE_BYTES = 2**16

GZIP = zlib.MAX_WBITS | 16
EITHER = zlib.MAX_WBITS | 32
"""What `zlib` is to expect: gzip, or whichever of the two it is."""

_MAGIC = b"\x1f\x8b"


class Unpacking:
    """One stream of bytes: members of gzip, one after the other, or one of zlib; what follows them is padding.

    Source: RFC 1952, 2.2.

    Args:
        expected: `GZIP` or `EITHER`.
    """

    def __init__(self, expected: int = EITHER) -> None:
        self._expected = expected
        self._member = zlib.decompressobj(expected)
        self._held = b""
        self._over = False

    @property
    def whole(self) -> bool:
        """Whether what came so far ends where a member does."""
        return self._member.eof

    def unpack(self, data: bytes) -> Iterator[bytes]:
        """What the next bytes unpack to, never more than `PIECE_BYTES` of it in memory.

        Raises:
            zlib.error: it is damaged.
        """
        full = False
        while (data or full) and not self._over:
            if self._member.eof:
                data, self._held = self._held + data, b""
                if data == _MAGIC[:1]:
                    self._held = data
                    return
                if not data.startswith(_MAGIC):
                    self._over = True
                    return
                self._member = zlib.decompressobj(self._expected)
            out = self._member.decompress(data, PIECE_BYTES)
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            full = len(out) == PIECE_BYTES and not self._member.eof
            if out:
                yield out
