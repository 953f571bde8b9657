"""A network that fails on command: a TCP proxy on the loopback interface before a server on a port or a Unix socket.

    with Proxy(("127.0.0.1", 5432)) as proxy:
        connect("127.0.0.1", proxy.port)
        proxy.latency = 0.05
        proxy.cut()     # what is connected is reset
        proxy.forget()  # what is connected is never heard of again; new connections work
        proxy.mute()    # and new ones are accepted, and hear nothing either
        proxy.heal()

A connection that was forgotten acknowledges nothing, as if the other machine had lost its power: a filter of the kernel
(socket(7), SO_ATTACH_FILTER) drops every segment before TCP sees it. That needs Linux, but no rights.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Self

_SO_ATTACH_FILTER = 26
_DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)  # BPF_RET | BPF_K, 0 bytes
_AT_ONCE = struct.pack("ii", 1, 0)

Address = tuple[str, int] | str
"""Host and port, or the path of a Unix socket."""


class _Pair:
    """A connection and its continuation to the server."""

    def __init__(self, near: socket.socket, far: socket.socket | None) -> None:
        self.near = near
        self.far = far
        self.silent = far is None

    def drop_all(self) -> None:
        """Neither side hears of the other again, nor of us."""
        self.silent = True
        program = ctypes.create_string_buffer(_DROP_ALL)
        for end in (self.near, self.far):
            if end is not None and end.family == socket.AF_INET:
                given = struct.pack("HL", 1, ctypes.addressof(program))
                end.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, given)

    def reset(self) -> None:
        """Break it off at once, in both directions."""
        for end in (self.near, self.far):
            if end is not None:
                with suppress(OSError):
                    if end.family == socket.AF_INET:
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                    end.shutdown(socket.SHUT_RD)  # wakes the thread that reads
                end.close()


class Proxy:
    """See the module. All methods may be called from any thread.

    Attributes:
        latency: seconds that each piece of data takes, in each direction.
        accepted: how many connections there were.
        lost: how many of them were cut or forgotten, or heard nothing from the start.
    """

    def __init__(self, server: Address) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port: int = self._listener.getsockname()[1]
        self.latency = 0.0
        self.accepted = 0
        self.lost = 0
        self._muted = False
        self._lock = threading.Lock()
        self._pairs: set[_Pair] = set()

    def cut(self) -> int:
        """Reset all connections; how many."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
            self.lost += len(pairs)
        for pair in pairs:
            pair.reset()
        return len(pairs)

    def forget(self) -> int:
        """Lose all connections without a word to either side; how many. New ones work."""
        with self._lock:
            forgotten = [pair for pair in self._pairs if not pair.silent]
            for pair in forgotten:
                pair.drop_all()
            self.lost += len(forgotten)
        return len(forgotten)

    def mute(self) -> int:
        """Forget all connections, and accept new ones without a word; how many were forgotten."""
        self._muted = True
        return self.forget()

    def heal(self) -> None:
        """New connections work again. What was forgotten stays so."""
        self._muted = False

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.accepted += 1
                far = None if self._muted else self._reach()
                self.lost += far is None
                pair = _Pair(near, far)
                self._pairs.add(pair)
            if far is not None:
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(pair, source, target), daemon=True).start()

    def _reach(self) -> socket.socket:
        if isinstance(self._server, str):
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._server)
            return far
        return socket.create_connection(self._server, timeout=None)

    def _pump(self, pair: _Pair, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if self.latency:
                    time.sleep(self.latency)
                if not pair.silent:
                    target.sendall(data)
        if not pair.silent:
            with self._lock:
                self._pairs.discard(pair)
            pair.reset()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
