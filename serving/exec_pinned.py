"""Become another program on given CPUs, and die with the parent.

Run as ``python -I -S exec_pinned.py PARENT_PID SIGNAL CPUS PROGRAM [ARG ...]``. A separate step
because setting affinity between fork and exec inside a threaded parent is not safe. Standard
library only.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, orphaned, cpus, *argv = sys.argv[1:]
    # prctl(2): the kernel sends this signal here when the parent is gone, however it went; once for
    # each of its threads that the child is handed to on the way.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(orphaned))
    if os.getppid() != int(parent):
        sys.exit("the parent was gone before the program started")
    if cpus:
        os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()
