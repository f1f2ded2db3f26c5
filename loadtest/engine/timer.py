"""Sleep until a moment, under gevent, to within tens of microseconds.

gevent's own sleep is rounded to whole milliseconds by epoll; a timerfd (timerfd_create(2)) is not.
"""

from __future__ import annotations

import ctypes
import os
import time

from gevent.socket import wait_read

_CLOCK_MONOTONIC, _ABSOLUTE, _NONBLOCK = 1, 1, os.O_NONBLOCK


class _Moment(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("s", ctypes.c_long),
        ("ns", ctypes.c_long),
    )


class Timer:
    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def sleep_until(self, moment_ns: int) -> None:
        """Return at ``moment_ns`` of ``time.monotonic_ns``; at once when that has passed."""
        if moment_ns <= time.monotonic_ns():
            return
        s, ns = divmod(moment_ns, 1_000_000_000)
        self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(_Moment(0, 0, s, ns)), None)
        wait_read(self._fd)
        os.read(self._fd, 8)

    def close(self) -> None:
        os.close(self._fd)
