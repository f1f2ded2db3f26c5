"""What can be scraped at this moment: one file per target, in a folder that Prometheus watches.

Every run announces its servers and its generator there, whether somebody watches or not. Format:
Prometheus's ``file_sd_config``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from serving.models.weights import cache_folder

FOLDER_VARIABLE = "INFERSWEEP_TARGETS"


def targets_folder() -> Path:
    """``$INFERSWEEP_TARGETS``, else a folder in the cache."""
    own = os.environ.get(FOLDER_VARIABLE)
    return Path(own) if own else cache_folder() / "targets"


@contextmanager
def announced(
    url: str | None, labels: Mapping[str, str], warn: Callable[[str], None]
) -> Iterator[None]:
    """Announce the metrics at ``url`` until the block is left; nothing for ``None``.

    A folder that cannot be written costs a warning, never a run.
    """
    if url is None:
        yield
        return
    parts = urlsplit(url)
    entry = {
        "targets": [parts.netloc],
        "labels": {**labels, "__scheme__": parts.scheme, "__metrics_path__": parts.path or "/"},
    }
    # The process's id tells whoever looks whether the target may still be there.
    file = targets_folder() / f"{os.getpid()}-{parts.port}.json"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps([entry]), encoding="utf-8")
        part.replace(file)
    except OSError as error:
        warn(f"{parts.netloc} cannot be announced to Prometheus: {error}")
    try:
        yield
    finally:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def drop_stale() -> None:
    """Remove what processes left that were killed."""
    for file in targets_folder().glob("*-*.json"):
        pid = file.name.partition("-")[0]
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            with suppress(OSError):
                file.unlink()
