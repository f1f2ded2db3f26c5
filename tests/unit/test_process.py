"""What becomes of a child process when its parent is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

_PARENT = """
import pathlib, signal, sys, time
from serving.process import RunningProcess
folder = pathlib.Path(sys.argv[1])
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); "
deaf += "time.sleep(60)"
child = RunningProcess([sys.executable, "-c", deaf], log=folder / "log", orphaned=signal.SIGKILL)
while "deaf" not in child.log_tail():
    time.sleep(0.01)
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_child_that_hears_no_sigterm_is_killed_with_its_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    _, left = psutil.wait_procs([child], timeout=20)
    assert not left
