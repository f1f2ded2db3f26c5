"""The process of a ``Called`` arm: ``python -m loadtest.playbook.caller SOCKET``.

It connects, is told what to build, and then measures whenever it is told to.
"""

from __future__ import annotations

import socket
import sys
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

from loadtest.playbook.called import Calls
from serving.errors import InfersweepError, ServerError

_LEAST_CALLS = 3


def main() -> None:
    with socket.socket(socket.AF_UNIX) as connected:
        connected.connect(sys.argv[1])
        connection = Connection(connected.detach())
    try:
        _serve(connection)
    except EOFError:
        # Whoever asked has gone.
        return


def _serve(connection: Connection) -> None:
    build, job, warm_up_s = connection.recv()
    try:
        calls: Calls = build(job)
        _timed(calls, warm_up_s)
    except Exception as error:
        connection.send(_told(error))
        return
    ready = {"rows": calls.rows, "answers": calls.answer is not None, "facts": dict(calls.facts)}
    connection.send(ready)
    try:
        while True:
            what, argument = connection.recv()
            try:
                connection.send(_done(calls, what, argument))
            except Exception as error:
                connection.send(_told(error))
    finally:
        calls.close()


def _done(calls: Calls, what: str, argument: Any) -> object:
    if what == "answers":
        assert calls.answer is not None
        return [dict(calls.answer(inputs)) for inputs in argument]
    return {"took_ns": _timed(calls, argument)}


def _timed(calls: Calls, seconds: float) -> list[int]:
    """Time of each call, until ``seconds`` are over."""
    took_ns: list[int] = []
    call, clock, keep = calls.call, time.perf_counter_ns, took_ns.append
    before = calls.before
    end_ns = clock() + round(seconds * 1e9)
    number = 0
    before_ns = clock()
    while before_ns < end_ns or number < _LEAST_CALLS:
        if before is not None:
            before(number)
            before_ns = clock()
        call(number)
        after_ns = clock()
        keep(after_ns - before_ns)
        before_ns = after_ns
        number += 1
    return took_ns


def _told(error: Exception) -> InfersweepError:
    """What the other side raises; the log has the whole story of what is none of our own errors."""
    if isinstance(error, InfersweepError):
        return error
    traceback.print_exception(error)
    return ServerError(f"{type(error).__name__}: {error}", hint="Its log has more.")


if __name__ == "__main__":
    main()
