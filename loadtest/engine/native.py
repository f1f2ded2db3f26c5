"""The native engine: a thread of C behind ctypes. ``engine.h`` describes every call."""

from __future__ import annotations

import ctypes
import os
import socket
from contextlib import suppress
from functools import cache
from urllib.parse import urlsplit

import numpy as np

from loadtest.connection import prepare
from loadtest.engine.base import (
    BATCH,
    OUTCOME,
    PENDING,
    RECORD,
    UNCHECKED,
    Choice,
    Column,
    Records,
    Target,
)
from loadtest.engine.build import build
from loadtest.payload import is_right
from serving.errors import ServerError

_LOW_PRIORITY = 10
_PROBE_S = 1.0
_VOID, _INT, _I64, _U32, _TEXT = (
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_int64,
    ctypes.c_uint32,
    ctypes.c_char_p,
)
_CALLS = {
    "engine_new": (_VOID, (_TEXT, _TEXT, _I64, ctypes.c_uint64, _INT, _INT, _INT)),
    "engine_add_request": (_INT, (_VOID, _TEXT, ctypes.c_uint64)),
    "engine_add_right": (_INT, (_VOID, _INT, _TEXT, _U32, ctypes.c_int32)),
    "engine_frames": (None, (_VOID, _INT, _I64)),
    "engine_start": (_INT, (_VOID,)),
    "engine_users": (None, (_VOID, _INT, _INT)),
    "engine_limit": (None, (_VOID, _I64, _I64)),
    "engine_schedule": (_I64, (_VOID, _VOID, _VOID, _I64)),
    "engine_end": (None, (_VOID, _I64)),
    "engine_give_up": (None, (_VOID,)),
    "engine_drain": (_I64, (_VOID, _VOID, _I64)),
    "engine_release": (None, (_VOID, ctypes.c_uint64, _U32)),
    "engine_in_flight": (_INT, (_VOID,)),
    "engine_waiting": (_I64, (_VOID,)),
    "engine_lost": (_I64, (_VOID,)),
    "engine_stop": (None, (_VOID,)),
    "engine_free": (None, (_VOID,)),
}


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(build()))
    for name, (result, arguments) in _CALLS.items():
        call = getattr(library, name)
        call.restype, call.argtypes = result, arguments
    return library


class NativeEngine:
    """Plain HTTP/1.1. The calling thread keeps books at a low priority from here on."""

    def __init__(self, target: Target) -> None:
        """Raises MachineError without a compiler, ServerError for a host that has no address."""
        self._library = _library()
        self._target = target
        self._room = np.zeros(BATCH, RECORD)
        self._unchecked = 0
        ip, port = _address(target.url)
        self._engine = self._library.engine_new(
            ip.encode(),
            str(port).encode(),
            int(target.timeout_s * 1e9),
            target.seed,
            target.connections,
            target.values_every,
            target.streams,
        )
        if not self._engine:
            raise MemoryError("the load engine could not be allocated")
        latest_only = target.policy == "latest-only"
        self._library.engine_frames(self._engine, latest_only, target.drop_after_ns or 0)
        path = f"/v2/models/{target.model}/infer"
        for payload in target.payloads:
            headers = {**payload.headers, **target.headers}
            request = prepare(target.url, path, headers, payload.body)
            self._library.engine_add_request(self._engine, request, len(request))
        if not self._library.engine_start(self._engine):
            raise MemoryError("the load engine's thread could not be started")
        # Linux: of this thread only. Book-keeping must not delay the thread that keeps time.
        os.setpriority(os.PRIO_PROCESS, 0, _LOW_PRIORITY)

    def set_users(self, users: int, *, together: bool = False) -> None:
        self._library.engine_users(self._engine, users, together)

    def set_limit(self, requests: int, due_ns: int) -> None:
        self._library.engine_limit(self._engine, requests, due_ns)

    def schedule(self, due_ns: Column, payloads: Choice) -> int:
        due_ns, payloads = np.ascontiguousarray(due_ns), np.ascontiguousarray(payloads)
        taken: int = self._library.engine_schedule(
            self._engine, due_ns.ctypes.data, payloads.ctypes.data, len(due_ns)
        )
        return taken

    def set_end(self, end_ns: int) -> None:
        self._library.engine_end(self._engine, end_ns)

    def give_up(self) -> None:
        self._library.engine_give_up(self._engine)

    def drain(self) -> Records:
        count = self._library.engine_drain(self._engine, self._room.ctypes.data, BATCH)
        records = self._room[:count].copy()
        self._unchecked += int((records["checked"] == UNCHECKED).sum())
        self._judge(records)
        return records

    def _judge(self, records: Records) -> None:
        """Give every pending answer its outcome; equal bytes are compared once."""
        known: dict[tuple[int, bytes], bool] = {}
        for at in np.flatnonzero(records["checked"] == PENDING):
            index, address, length = (
                int(records[name][at]) for name in ("payload", "body", "body_length")
            )
            body = ctypes.string_at(address, length)
            self._library.engine_release(self._engine, address, length)
            if (index, body) not in known:
                known[index, body] = self._compare(index, body, int(records["json_length"][at]))
            if not known[index, body]:
                records["outcome"][at] = OUTCOME["wrong_answer"]

    def _compare(self, index: int, body: bytes, json_length: int) -> bool:
        """Whether ``body`` answers payload ``index``; a right one is known from then on."""
        right = is_right(
            self._target.payloads[index],
            body,
            None if json_length < 0 else json_length,
            values=self._target.values_every > 0,
        )
        if right:
            self._library.engine_add_right(self._engine, index, body, len(body), json_length)
        return right

    @property
    def busy(self) -> int:
        # In this order: what leaves the one meanwhile is seen in the other.
        waiting = self._library.engine_waiting(self._engine)
        return int(waiting + self._library.engine_in_flight(self._engine))

    @property
    def lost(self) -> int:
        return int(self._library.engine_lost(self._engine))

    @property
    def unchecked(self) -> int:
        return self._unchecked

    def stop(self) -> None:
        self._library.engine_stop(self._engine)

    def __del__(self) -> None:
        if getattr(self, "_engine", None):
            self._library.engine_stop(self._engine)
            self._library.engine_free(self._engine)


def _address(url: str) -> tuple[str, int]:
    """The first address of the host that takes a connection; the very first where none does."""
    parts = urlsplit(url)
    port = parts.port or 80
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ServerError(f"{url} has no address: {error}", hint="Is the name right?") from None
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        with suppress(OSError), socket.create_connection((address, port), _PROBE_S):
            return address, port
    return addresses[0], port
