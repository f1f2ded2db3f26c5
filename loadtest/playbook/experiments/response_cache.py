"""Triton's response cache, with requests that repeat more or less often."""

from __future__ import annotations

from functools import partial

from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import all_of, no_variant, own_graph, small_requests
from loadtest.playbook.own import launched
from loadtest.playbook.repeating import repeating, with_cache
from loadtest.playbook.served import Served

_REPEATS = {90: (90, 10), 50: (30, 30), 0: (0, 60)}
"""Percent, and how many samples are one and the same, and how many are others."""
_MOST_BYTES = 2_000_000


def _arms(lab: Lab) -> tuple[Served, ...]:
    models = {
        percent: partial(repeating, repeats=repeats, distinct=distinct)
        for percent, (repeats, distinct) in _REPEATS.items()
    }
    cached = launched("triton", with_cache(lab))
    return (
        Served("without-90", "Triton, no cache, 90% repeats", backend="triton", model=models[90]),
        *(
            Served(
                f"with-{percent}",
                f"Triton with a response cache, {percent}% repeats",
                model=model,
                own=cached,
            )
            for percent, model in models.items()
        ),
    )


EXPERIMENT = Experiment(
    name="response-cache",
    title="Triton's response cache",
    claim="Where nine of ten requests repeat, a response cache multiplies throughput.",
    usual=(2.0, 10.0),
    page="backends.md",
    arms=_arms,
    missing=all_of(own_graph, no_variant, small_requests(_MOST_BYTES)),
)
