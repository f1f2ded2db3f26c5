"""A summary with everything a report must cope with."""

from __future__ import annotations

from loadtest.analysis import summarise
from loadtest.results import Summary
from tests import sample_trials as made
from tests.sample_trials import MS

SPEED_MS = {"triton": 5, "onnxruntime": 4, "fastapi": 6}


def summary() -> Summary:
    """Three backends at four concurrencies, one INVALID point, one excluded, a hostile fact."""
    labels = (*SPEED_MS, "fastapi:torch")
    users = (1, 2, 4, 8)
    pairs = []
    for label, base_ms in SPEED_MS.items():
        for concurrency in users:
            for repeat in (1, 2, 3):
                latency = base_ms * concurrency
                count = 2000 // base_ms + 3 * repeat
                samples = [latency * MS + (n % 97) * 10_000 for n in range(count)]
                bad = label == "fastapi" and concurrency == 8
                changes = {"verdict": "INVALID", "reasons": ("9 wrong answers",)} if bad else {}
                pairs.append(made.trial(label, concurrency, repeat, samples, **changes))
    records = {label: made.record(label) for label in SPEED_MS}
    records["triton"] = made.record("triton", facts={"launcher": "<script>alert(1)</script>"})
    records["fastapi:torch"] = made.record("fastapi:torch", excluded="it did not start")
    return summarise(
        made.manifest(backends=labels, concurrency=users),
        records,
        [trial for trial, _ in pairs],
        {h.trial: h for _, h in pairs}.__getitem__,
        exempt=frozenset(),
    )
