"""py-spy, the sampling profiler, on a process and its family: its command and what it tells.

https://github.com/benfred/py-spy
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from serving.errors import InfersweepError, MachineError, ServerError

BEGUN = "Sampling process"
"""What it prints once it has read the process and begins."""

_COUNTS = re.compile(r"Samples: (\d+) Errors: (\d+)")
_BEHIND = re.compile(r"([\d.]+)s behind in sampling")
_ERROR = re.compile(r"^Error: (.*)$", re.MULTILINE)
_REFUSED = re.compile(r"permission denied|operation not permitted", re.IGNORECASE)
_NO_PYTHON = re.compile(r"no python processes found|failed to find python", re.IGNORECASE)


@dataclass(frozen=True)
class Told:
    """What py-spy says at its end.

    Attributes:
        errors: stacks that it could not read.
        behind_s: how far it fell behind its rate at most.
    """

    samples: int
    errors: int
    behind_s: float


def find_spy() -> Path:
    """The program of the Python environment that this is, else the one on PATH.

    Raises:
        MachineError: there is none.
    """
    beside = Path(sys.executable).with_name("py-spy")
    found = beside if beside.is_file() else shutil.which("py-spy")
    if found is None:
        raise MachineError("py-spy is not installed", hint="Install it with `make setup`.")
    return Path(found)


def reads_native(spy: Path) -> bool:
    """Whether this build can unwind C and C++; not every one can."""
    told = subprocess.run([spy, "record", "--help"], capture_output=True, text=True, check=False)
    return "--native" in told.stdout


def command(
    spy: Path, pid: int, out: Path, *, seconds: int, rate_hz: int, native: bool
) -> Sequence[str]:
    """Samples the process and its family for so long, and writes folded stacks."""
    words = [str(spy), "record", "--pid", str(pid), "--subprocesses", "--format", "raw"]
    words += ["--rate", str(rate_hz), "--duration", str(seconds), "--output", str(out)]
    return [*words, "--native"] if native else words


def understood(log: str) -> Told | None:
    """What it printed; ``None`` where it did not come to its end."""
    counts = _COUNTS.search(log)
    if counts is None:
        return None
    behind = max((float(found) for found in _BEHIND.findall(log)), default=0.0)
    return Told(int(counts[1]), int(counts[2]), behind)


def fault_of(log: str, pid: int, *, python: bool) -> InfersweepError:
    """Why there are no samples, by what it printed.

    Of a family that it may not read it says that there is no Python in it; ``python`` says whether
    there is.
    """
    if _REFUSED.search(log) or (python and _NO_PYTHON.search(log)):
        return MachineError(
            f"py-spy may not read process {pid}",
            hint="Run as root, `sysctl kernel.yama.ptrace_scope=0`, or start the container with "
            "--cap-add SYS_PTRACE.",
        )
    if _NO_PYTHON.search(log):
        return ServerError(
            f"process {pid} and its children run no Python that py-spy can read",
            hint="Profile it with `perf record -g`, or another backend.",
        )
    line = _ERROR.search(log)
    return ServerError(
        f"py-spy failed: {line[1].rstrip('.') if line else 'it did not come to its end'}",
        hint="Its log lies in the folder logs.",
    )
