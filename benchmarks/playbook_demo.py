"""The whole playbook on two models: ``make playbook-demo``; ``--write-docs`` puts it in the docs.

One model for which batching brings little on a CPU, and one for which it pays.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

MODELS = ("image_classifier", "flight_policy")
LIMIT_S = {"full": 40 * 60.0, "quick": 10 * 60.0}
_ROOT = Path(__file__).parents[1]
_PAGE = _ROOT / "docs" / "playbook.md"
_BEGIN, _END = "<!-- measured: begin -->", "<!-- measured: end -->"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.playbook_demo")
    parser.add_argument("--quick", action="store_true", help="one start of each arm, short windows")
    parser.add_argument("--out", type=Path, default=Path("results/playbook-demo"))
    parser.add_argument("--write-docs", action="store_true", help="put the tables in the docs")
    asked = parser.parse_args()
    pace = "quick" if asked.quick else "full"
    began_s, status = time.monotonic(), 0
    folders = [asked.out / pace / model for model in MODELS]
    for model, folder in zip(MODELS, folders, strict=True):
        more = ["--quick"] if asked.quick else []
        argv = ["infersweep", "playbook", "--model", model, "--out", str(folder), *more]
        argv[0] = str(Path(sys.executable).with_name("infersweep"))
        status = status or subprocess.run(argv, check=False).returncode
        if status:
            return status
    took_s = time.monotonic() - began_s
    print(f"{pace}: {took_s / 60:.1f} min, asked for less than {LIMIT_S[pace] / 60:.0f} min")
    if asked.write_docs:
        write_docs(_PAGE, [(folder / "playbook.md").read_text("utf-8") for folder in folders])
    return 0 if took_s < LIMIT_S[pace] else 1


def write_docs(page: Path, tables: list[str]) -> None:
    """Replace what stands between the marks by ``tables``."""
    before, rest = page.read_text(encoding="utf-8").split(_BEGIN)
    _, after = rest.split(_END)
    page.write_text("\n".join([before + _BEGIN, *tables, _END + after]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
