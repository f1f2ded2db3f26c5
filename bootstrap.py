"""Create .venv, install what is pinned, fetch what later runs need. Called by the Makefile.

Standard library only, and written so that an old Python can still read it and say that it is old.
"""


import os
import shutil
import subprocess
import sys
import time

NEEDED_PYTHON = (3, 11)
NEEDED_DISK_BYTES = 6 * 10**9
HERE = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(HERE, ".venv")
EXIT_MACHINE, EXIT_FETCH = 3, 4


def stop(status, what, hint):
    sys.stderr.write("infersweep setup: %s. %s\n" % (what, hint))
    sys.exit(status)


def check_machine():
    if sys.version_info < NEEDED_PYTHON:
        stop(
            EXIT_MACHINE,
            "Python %d.%d is too old, 3.11 or newer is needed" % sys.version_info[:2],
            "Name a newer one: make PYTHON=python3.11 compare",
        )
    free = shutil.disk_usage(HERE).free
    if not os.path.isdir(VENV) and free < NEEDED_DISK_BYTES:
        stop(
            EXIT_MACHINE,
            "%.1f GB are free in %s, the set-up needs %.0f"
            % (free / 1e9, HERE, NEEDED_DISK_BYTES / 1e9),
            "Free some space, or clone to another disk",
        )


def run(argv, what, status):
    """Run a step, showing that it goes on; on failure show the end of its output."""
    sys.stderr.write("%s ...\n" % what)
    started = time.time()
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=HERE)
    tail = []
    for raw in child.stdout:
        line = raw.decode("utf-8", "replace").rstrip()
        tail = (tail + [line])[-6:]
        if line.startswith(("Collecting", "Downloading", "Installing")):
            sys.stderr.write("  %s\n" % line[:110])
    if child.wait() != 0:
        errors = [line for line in tail if "ERROR" in line] or tail or ["no output"]
        stop(
            status,
            "%s failed: %s" % (what, errors[-1]),
            "If there is no network, connect once; later runs need none",
        )
    sys.stderr.write("  done in %.0f s\n" % (time.time() - started))


def main():
    check_machine()
    python = os.path.join(VENV, "bin", "python")
    if not os.path.isfile(python):
        run(
            [sys.executable, "-m", "venv", VENV],
            "Creating .venv (Debian: apt-get install python3-venv)",
            EXIT_MACHINE,
        )
    run(
        [python, "-m", "pip", "install", "--constraint", "constraints.txt", "--editable", ".[dev]"],
        "Installing pinned packages (2 GB; a few minutes at the first run)",
        EXIT_FETCH,
    )
    status = subprocess.call([os.path.join(VENV, "bin", "infersweep"), "setup"], cwd=HERE)
    if status != 0:
        sys.exit(status)


if __name__ == "__main__":
    main()
