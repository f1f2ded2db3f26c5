"""The process of a ``Called`` arm: it is told what to build, then measures whenever it is told to.

Run as ``python -m loadtest.playbook.caller SOCKET``.
"""

from __future__ import annotations

import time
from typing import Any

from loadtest.playbook.called import Calls
from loadtest.playbook.child import serve

_LEAST_CALLS = 3


class Caller:
    """What one process calls."""

    def __init__(self) -> None:
        self._calls: Calls | None = None

    def answer(self, asked: tuple[str, Any]) -> object:
        """``build`` first; then ``answers`` to inputs, or the times of calls in a ``window``."""
        what, argument = asked
        if what == "build":
            return self._build(*argument)
        calls = self._calls
        assert calls is not None
        if what == "answers":
            assert calls.answer is not None
            return [dict(calls.answer(inputs)) for inputs in argument]
        return {"took_ns": timed(calls, argument)}

    def _build(self, build: Any, job: Any, warm_up_s: float) -> object:
        calls = self._calls = build(job)
        timed(calls, warm_up_s)
        return {
            "rows": calls.rows,
            "answers": calls.answer is not None,
            "facts": dict(calls.facts),
        }

    def close(self) -> None:
        if self._calls is not None:
            self._calls.close()


def timed(calls: Calls, seconds: float) -> list[int]:
    """Time of each call in nanoseconds, until ``seconds`` are over; three calls at the least."""
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


def main() -> None:
    caller = Caller()
    try:
        serve(caller.answer)
    finally:
        caller.close()


if __name__ == "__main__":
    main()
