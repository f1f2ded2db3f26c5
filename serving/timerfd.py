"""A timer of the kernel's that is exact to tens of microseconds (timerfd_create(2)).

Event loops round to whole milliseconds, which is longer than many a queue delay. Python has this
call from 3.13 on.
"""

from __future__ import annotations

import ctypes
import os

_CLOCK_MONOTONIC, _ABSOLUTE, _NONBLOCK = 1, 1, os.O_NONBLOCK
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Moment(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("s", ctypes.c_long),
        ("ns", ctypes.c_long),
    )


class TimerFd:
    """Its file descriptor ``fd`` becomes readable at the moment that was set."""

    def __init__(self) -> None:
        self.fd: int = _LIBC.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def set(self, moment_ns: int) -> None:
        """Ring once at ``moment_ns`` of ``time.monotonic_ns``, at once when it has passed."""
        s, ns = divmod(moment_ns, 1_000_000_000)
        _LIBC.timerfd_settime(self.fd, _ABSOLUTE, ctypes.byref(_Moment(0, 0, s, ns)), None)

    def clear(self) -> None:
        """Take note of a ring, so that ``fd`` is quiet again; it must be readable."""
        os.read(self.fd, 8)

    def close(self) -> None:
        os.close(self.fd)
