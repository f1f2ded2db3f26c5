"""Is the program in this container well? Standard library only, and started without site packages.

``health.py answers URL`` asks a server; ``health.py connected PORT`` looks for an established
connection to that port, which is all that a Locust worker shows of itself.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

_TIMEOUT_S = 2.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Docker hands its proxy settings on to containers, and loopback is behind no proxy."""
_ESTABLISHED = "01"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def main(arguments: Sequence[str]) -> int:
    """0 for well, 1 for not, 2 for a command that makes no sense."""
    match arguments:
        case ["answers", url]:
            return 0 if answers(url) else 1
        case ["connected", port] if port.isdecimal():
            text = "\n".join(table.read_text() for table in _TABLES if table.exists())
            return 0 if connected(text, int(port)) else 1
    sys.stderr.write("health.py answers URL | health.py connected PORT\n")
    return 2


def answers(url: str) -> bool:
    """Whether ``url`` is answered with a status below 300."""
    try:
        with _DIRECT.open(url, timeout=_TIMEOUT_S) as reply:
            return bool(reply.status < 300)
    except (urllib.error.URLError, OSError):
        return False


def connected(table: str, port: int) -> bool:
    """Whether the kernel's table of TCP connections has one to ``port`` that is established.

    Columns as proc_pid_net(5) has them: number, local address, remote address, state.
    """
    rows = (line.split() for line in table.splitlines())
    return any(
        len(row) > 3 and row[3] == _ESTABLISHED and row[2].endswith(f":{port:04X}") for row in rows
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
