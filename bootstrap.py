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
    errors, last = [], "no output"
    for raw in child.stdout:
        line = raw.decode("utf-8", "replace").strip()
        last = line or last
        if "ERROR: " in line:
            errors.append(line[line.index("ERROR: ") + 7 :])
        if line.startswith(("Collecting", "Downloading", "Installing")):
            sys.stderr.write("  %s\n" % line[:100])
    if child.wait() != 0:
        said = (errors or [last])[0]
        stop(status, "%s failed: %s" % (what, said.rstrip(".")), next_step(said))
    sys.stderr.write("  done in %.0f s\n" % (time.time() - started))


def next_step(said):
    if "No space left" in said:
        return "Free some space and run it again"
    if "ensurepip" in said or "venv" in said:
        return "On Debian and Ubuntu: apt-get install python3-venv"
    return "The first run needs the Python package index; later runs need no network"


def main():
    check_machine()
    python = os.path.join(VENV, "bin", "python")
    if not os.path.isfile(python):
        run(
            [sys.executable, "-m", "venv", VENV],
            "Creating .venv",
            EXIT_MACHINE,
        )
    run(
        [python, "-m", "pip", "install", "--constraint", "constraints.txt", "--editable", ".[dev]"],
        "Installing the pinned packages, 2 GB",
        EXIT_FETCH,
    )
    status = subprocess.call([os.path.join(VENV, "bin", "infersweep"), "setup"], cwd=HERE)
    if status != 0:
        sys.exit(status)


if __name__ == "__main__":
    main()
