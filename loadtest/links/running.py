"""A relay as a process of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from serving.process import RunningProcess, wait_until

_START_S = 10.0
_ADDRESS = re.compile(r"^\S+:\d+$", re.MULTILINE)


@contextmanager
def running_link(
    link: str, server: str, *, log: Path, seed: int = 0, cpus: Sequence[int] = ()
) -> Iterator[str]:
    """``HOST:PORT`` of a relay to ``server`` over ``link``, a name or a file; ``log`` is new.

    Raises:
        ServerError: the relay did not start; the log says why.
    """
    argv = [sys.executable, "-m", "loadtest.links.relay"]
    argv += ["--link", link, "--to", server, "--seed", str(seed)]
    with RunningProcess(argv, cpus=cpus, log=log) as process:
        wait_until(
            lambda: _ADDRESS.search(process.log_tail()) is not None,
            deadline_s=_START_S,
            process=process,
            what=f"link {link}",
            poll_s=0.02,
        )
        found = _ADDRESS.search(process.log_tail())
        assert found is not None
        yield found[0]
