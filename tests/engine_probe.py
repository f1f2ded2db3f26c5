"""Runs one load engine in a process of its own and prints what it recorded, as JSON.

Run as ``python -m tests.engine_probe SPEC``: gevent's patch, which the Python engine lives under,
must not reach the tests' own process.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.engine import Engine, Target, open_engine
from loadtest.engine.base import BATCH, Records
from loadtest.payload import read_payloads
from loadtest.results import OUTCOMES


def everything(engine: Engine) -> list[Records]:
    parts = [engine.drain()]
    while len(parts[-1]) == BATCH:
        parts.append(engine.drain())
    return parts


def main() -> None:
    given: dict[str, Any] = json.loads(sys.argv[1])
    target = Target(
        url=given["url"],
        model=given["model"],
        payloads=tuple(read_payloads(Path(given["payloads"]))),
        timeout_s=given.get("timeout_s", 5.0),
        streams=given.get("streams", 0),
        policy=given.get("policy", "fifo"),
        deadline_ns=given.get("deadline_ns"),
        connections=given.get("connections", 64),
        values_every=given.get("values_every", 20),
        headers=given.get("headers", {}),
    )
    ca_file = Path(given["ca_file"]) if "ca_file" in given else None
    engine = open_engine(given["engine"], target, ca_file)
    start_ns = time.monotonic_ns() + 50_000_000
    if "requests" in given:
        engine.set_limit(given["requests"], start_ns)
    if "arrivals_ms" in given:
        due = start_ns + (np.array(given["arrivals_ms"]) * 1e6).astype(np.int64)
        chosen = given.get("arrival_payloads", [0] * len(due))
        engine.schedule(due, np.array(chosen, np.uint32))
    engine.set_users(given.get("users", 0), together=given.get("together", False))
    parts = []
    for _ in range(int(given["seconds"] / 0.05)):
        time.sleep(0.05)
        parts += everything(engine)
    engine.set_end(0)
    if given.get("wait", True):
        deadline = time.monotonic() + target.timeout_s + 1
        while engine.busy and time.monotonic() < deadline:
            time.sleep(0.02)
    engine.stop()
    records = np.concatenate([*parts, *everything(engine)])
    names = [OUTCOMES[kind] for kind in records["outcome"]]
    columns = {name: records[name].tolist() for name in ("query", "status", "payload")}
    times = {
        name: ((records[name] - start_ns) / 1e6).tolist()
        for name in ("due", "sent", "first_byte", "done")
    }
    found = {"outcome": names, **columns, **times, "lost": engine.lost, "busy": engine.busy}
    print(json.dumps({**found, "unchecked": engine.unchecked}))  # noqa: T201


main()
