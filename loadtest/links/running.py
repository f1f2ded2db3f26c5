"""A relay as a process of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtest.links.usage import cpu_share, read_readings
from serving.process import RunningProcess, wait_until

_START_S = 10.0
_ADDRESS = re.compile(r"^\S+:\d+$", re.MULTILINE)


@dataclass(frozen=True)
class RunningLink:
    """Attributes: ``address`` is ``HOST:PORT``, which clients use in place of the server's."""

    address: str
    usage: Path

    def cpu_share(self, start_unix_s: float, length_s: float) -> float | None:
        """Of one CPU, of which a relay can use no more; ``None`` for too short a time."""
        return cpu_share(read_readings(self.usage), start_unix_s, start_unix_s + length_s)


@contextmanager
def running_link(
    link: str,
    server: str,
    *,
    log: Path,
    seed: int = 0,
    each_connection: bool = False,
    cpus: Sequence[int] = (),
) -> Iterator[RunningLink]:
    """A relay to ``server`` over ``link``, a name or a file; what it prints is added to ``log``.

    ``each_connection``: every connection has such a link of its own.

    Raises:
        ServerError: the relay did not start; the log says why.
    """
    usage = log.with_suffix(".usage")
    usage.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "loadtest.links.relay"]
    argv += ["--link", link, "--to", server, "--seed", str(seed), "--usage", str(usage)]
    argv += ["--each-connection"] if each_connection else []
    known = log.stat().st_size if log.is_file() else 0
    with RunningProcess(argv, cpus=cpus, log=log) as process:
        wait_until(
            lambda: _address(log, known) is not None,
            deadline_s=_START_S,
            process=process,
            what=f"link {link}",
            poll_s=0.02,
        )
        found = _address(log, known)
        assert found is not None
        yield RunningLink(found, usage)


def _address(log: Path, known_bytes: int) -> str | None:
    """What this relay, not one before it, says."""
    found = _ADDRESS.search(log.read_bytes()[known_bytes:].decode(errors="replace"))
    return found[0] if found else None
