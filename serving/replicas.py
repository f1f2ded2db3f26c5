"""Several copies of one server behind one address.

Run as ``python -I -S replicas.py PORTS PROGRAM [ARG ...]``: one copy for each of the ports, which
are separated by commas; ``{port}`` in an argument stands for the copy's own. The copies share an
address by SO_REUSEPORT, so the kernel gives each new connection to one of them by a hash of both
ends: few connections may be shared out badly, and a kept connection stays where it is. SIGTERM and
SIGINT are passed on; when one copy ends for good, the others are told to end too, and its exit
status is passed on. Standard library only.
"""

import os
import signal
import sys

_SHIM = __file__.replace("replicas.py", "exec_pinned.py")


def main() -> int:
    """Run until every copy has ended; returns the exit status of the first that did."""
    ports, *program = sys.argv[1:]
    # A copy dies with this process, however that goes.
    shim = [sys.executable, "-I", "-S", _SHIM, str(os.getpid()), str(int(signal.SIGTERM)), ""]
    running: set[int] = set()
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        for pid in running:
            os.kill(pid, signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    for port in ports.split(","):
        argv = [*shim, *(part.replace("{port}", port) for part in program)]
        running.add(os.posix_spawn(argv[0], argv, os.environ))
    if stopping:
        stop()
    codes = []
    while running:
        pid, status = os.wait()
        running.discard(pid)
        code = os.waitstatus_to_exitcode(status)
        codes.append(code if code >= 0 else 128 - code)
        if not stopping:
            print(f"a copy ended with status {codes[0]}; ending the others", flush=True)  # noqa: T201
            stop()
    return codes[0]


if __name__ == "__main__":
    sys.exit(main())
