"""``python -m loadtest.dashboards``: write what is made from the table of metrics."""

from __future__ import annotations

import sys
from pathlib import Path

from loadtest.dashboards.files import files

ROOT = Path(__file__).parents[2]


def main() -> int:
    for name, text in files().items():
        file = ROOT / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
