"""Sleep until a moment, under gevent, to within tens of microseconds.

gevent's own sleep is rounded to whole milliseconds by epoll.
"""

from __future__ import annotations

import time

from gevent.socket import wait_read

from serving.timerfd import TimerFd


class Timer:
    def __init__(self) -> None:
        self._timer = TimerFd()

    def sleep_until(self, moment_ns: int) -> None:
        """Return at ``moment_ns`` of ``time.monotonic_ns``; at once when that has passed."""
        if moment_ns <= time.monotonic_ns():
            return
        self._timer.set(moment_ns)
        wait_read(self._timer.fd)
        self._timer.clear()

    def close(self) -> None:
        self._timer.close()
