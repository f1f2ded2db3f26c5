"""Keep one program running: start it, start it again when a signal has killed it.

Run as ``python -I -S supervise.py PROGRAM [ARG ...]``. The program's own exits are passed on, and
so are SIGTERM and SIGINT; INFERSWEEP_RESTARTS tells it how often it was started again. This process
stays small and does nothing else, so that what ends the program does not end it too. Standard
library only.
"""

import os
import signal
import sys
import time

_SHIM = __file__.replace("supervise.py", "exec_pinned.py")
_RESTARTS = "INFERSWEEP_RESTARTS"
_SOON_S = 5.0
_LONGEST_PAUSE_S = 30.0


def main() -> int:
    """Run until the program ends by itself or is told to; returns its exit status."""
    # The program dies with this process, however that goes.
    own = (str(os.getpid()), str(int(signal.SIGTERM)), "")
    argv = [sys.executable, "-I", "-S", _SHIM, *own, *sys.argv[1:]]
    stopping = False
    child = 0

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        if child:
            os.kill(child, signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    pause_s, restarts = 0.0, 0
    while True:
        began_s = time.monotonic()
        child = os.posix_spawn(argv[0], argv, {**os.environ, _RESTARTS: str(restarts)})
        if stopping:
            os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        child, code = 0, os.waitstatus_to_exitcode(status)
        if stopping or code >= 0:
            return code if code >= 0 else 128 - code
        lived_s = time.monotonic() - began_s
        pause_s = min(2 * pause_s + 0.1, _LONGEST_PAUSE_S) if lived_s < _SOON_S else 0.0
        print(f"killed by {signal.Signals(-code).name}; starting another", flush=True)  # noqa: T201
        restarts += 1
        time.sleep(pause_s)


if __name__ == "__main__":
    sys.exit(main())
