"""Cold start: from the start of a server's process to its first right answer, files cached or not.

The first start of a backend in a run is taken as it comes. Before the second, what the first had
mapped or open and the model's files are dropped from the page cache; from the third on they lie
there again. What a server only reads and closes (such as a script) is not known, and stays.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import quote, urlsplit

from loadtest.explained import Start, StartState
from loadtest.page_cache import cached, drop, files_of, holders
from loadtest.payload import Payload, is_right
from serving.deployment import Server
from serving.models.repository import Model
from serving.protocol import HEADER_LENGTH, ProtocolError, parse_header_length

ANSWER_WITHIN_S = 60.0
_NAMED_FILES = 3
_ENGINE = re.compile(r"TensorRT engine ([^\n]*)")


@dataclass(frozen=True)
class _Prepared:
    """What was done before a start."""

    state: StartState
    dropped_bytes: int | None = None
    kept_bytes: int | None = None
    notes: tuple[str, ...] = ()


_AS_FOUND = _Prepared("as found")


@dataclass
class ColdStarts:
    """The starts of one run.

    Attributes:
        earlier: what an earlier command of the same run kept.
    """

    earlier: Sequence[Start] = ()
    _seen: list[Start] = field(default_factory=list)
    _files: dict[str, frozenset[Path]] = field(default_factory=dict)
    _prepared: dict[str, _Prepared] = field(default_factory=dict)

    def before_start(self, backend: str) -> StartState:
        """Bring the page cache to the state that the next start of ``backend`` is to have."""
        files = self._files.get(backend)
        if files is None:
            prepared = _AS_FOUND
        elif any(start.state == "not cached" for start in self._starts_of(backend)):
            prepared = _Prepared("cached", 0, cached(files).total_bytes)
        else:
            prepared = _dropped(files)
        self._prepared[backend] = prepared
        return prepared.state

    def started(
        self, backend: str, server: Server, payload: Payload, *, values: bool
    ) -> Start | None:
        """Ask for the first answer; call as soon as the server is ready. Raises nothing.

        ``None`` for a server that is not ours to start. ``payload`` goes over HTTP; ``values`` of
        its answer do not count for a server that does not compute them.
        """
        if server.process is None or server.start_s is None:
            return None
        took_s, fault = first_answer(server.url, server.model.name, payload, values=values)
        prepared = self._prepared.pop(backend, _AS_FOUND)
        notes = [*prepared.notes, *([fault] if fault else [])]
        if server.launch.hidden:
            notes.append(f"{server.launch.hidden}, so its files are not known")
        else:
            found = files_of(server.process.pid) | model_files(server.model)
            self._files[backend] = self._files.get(backend, frozenset()) | found
        if engine := _ENGINE.findall(server.process.log_tail(lines=1000)):
            notes.append(f"TensorRT engine: {engine[-1]}")
        start = Start(
            backend=backend,
            repeat=len(self._starts_of(backend)) + 1,
            state=prepared.state,
            ready_s=server.start_s,
            first_answer_s=None if took_s is None else server.start_s + took_s,
            dropped_bytes=prepared.dropped_bytes,
            kept_bytes=prepared.kept_bytes,
            notes=tuple(notes),
        )
        self._seen.append(start)
        return start

    def _starts_of(self, backend: str) -> list[Start]:
        return [start for start in (*self.earlier, *self._seen) if start.backend == backend]


def model_files(model: Model) -> frozenset[Path]:
    """All files of a placed model, behind the links of its versions."""
    folders = [(model.folder / str(version)).resolve() for version in model.versions]
    found = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return frozenset([model.folder / "config.pbtxt", *found])


def first_answer(
    url: str, model: str, payload: Payload, *, values: bool
) -> tuple[float | None, str]:
    """Seconds until the whole reply to one request had come, on a new connection.

    ``None`` where it is not the right answer, with the reason.
    """
    address = urlsplit(url)
    begun = time.monotonic()
    try:
        connection = HTTPConnection(address.netloc, timeout=ANSWER_WITHIN_S)
        try:
            path = f"/v2/models/{quote(model)}/infer"
            connection.request("POST", path, payload.body, payload.headers)
            reply = connection.getresponse()
            body = reply.read()
        finally:
            connection.close()
        took_s = time.monotonic() - begun
        length = parse_header_length(reply.getheader(HEADER_LENGTH))
    except (OSError, HTTPException, ProtocolError) as error:
        return None, f"its first answer did not come: {error!r}"
    if reply.status != 200:
        return None, f"its first answer was {reply.status}"
    if not is_right(payload, body, length, values=values):
        return None, "its first answer was not the right one"
    return took_s, ""


def _dropped(files: frozenset[Path]) -> _Prepared:
    """Drop them, and see what stays and why."""
    before = cached(files)
    drop(files)
    after = cached(files)
    return _Prepared(
        "not cached",
        max(before.total_bytes - after.total_bytes, 0),
        after.total_bytes,
        tuple(_why_kept(after.resident_bytes, after.untold)),
    )


def _why_kept(resident_bytes: Mapping[Path, int], untold: frozenset[Path]) -> list[str]:
    notes = []
    held = holders(resident_bytes)
    if held:
        largest = sorted(held, key=lambda file: resident_bytes[file], reverse=True)
        names = sorted({name for file in held for name in held[file]})
        size = _megabytes(sum(resident_bytes[file] for file in held))
        notes.append(
            f"{size} stay in memory, since {', '.join(names)} have them mapped: "
            + ", ".join(file.name for file in largest[:_NAMED_FILES])
            + (" and others" if len(largest) > _NAMED_FILES else "")
        )
    rest_bytes = sum(size for file, size in resident_bytes.items() if file not in held)
    if rest_bytes:
        notes.append(f"{_megabytes(rest_bytes)} stay in memory though nothing has them mapped")
    if untold:
        notes.append(f"of {len(untold)} files of other users the kernel does not tell")
    return notes


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
