"""Can ``torch.jit.script`` compile a model? Asked before a server starts, which would die of it.

Run as ``python -m serving.backends.fastapi.scripting MODEL`` to try one in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache


@cache
def why_not_scriptable(model: str) -> str:
    """The compiler's first line on the zoo model ``model``; empty when it compiles.

    In a process of its own, so that PyTorch is not loaded into one that measures.
    """
    tried = subprocess.run(
        [sys.executable, "-m", "serving.backends.fastapi.scripting", model],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode == 0:
        return ""
    return tried.stdout.strip() or f"it ended with status {tried.returncode}"


def _fault(model: str) -> str:
    import torch  # noqa: PLC0415  (only the process that tries needs it)

    from serving.models.zoo.build import load_torch_module  # noqa: PLC0415

    module = load_torch_module(model)
    try:
        torch.jit.script(module)
    except Exception as error:
        # Whatever a module's source leads to: RuntimeError, NotImplementedError, OSError.
        return str(error).strip().partition("\n")[0].rstrip(".:") or type(error).__name__
    return ""


if __name__ == "__main__":
    found = _fault(sys.argv[1])
    sys.stdout.write(found)
    sys.exit(1 if found else 0)
