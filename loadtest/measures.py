"""What one repeat comes to in one number: throughput, a percentile, memory, energy."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial

from hdrh.codec import HdrCookieException, HdrLengthException

from loadtest.analysis import PERCENTILES, HistogramReader, samples_of
from loadtest.confidence import Samples, sample_floor
from loadtest.results import Trial
from serving.errors import ResultsError, UsageError

RESOLUTION = 1e-3
"""HDR histograms of three digits; no other figure here is known much better."""

_NS_PER_MS = 1e6
_BYTES_PER_MB = 1e6

SamplesReader = Callable[[Trial], Samples]
"""The response times of one trial."""


class UnmeasuredError(Exception):
    """One repeat has no such number; the text says why."""


@dataclass(frozen=True)
class Reading:
    """``basis``: what the value is of, where figures of another basis are no match for it."""

    value: float
    basis: str = ""


@dataclass(frozen=True)
class Measure:
    """One value of ``--metric``.

    Attributes:
        of: one trial's value. Raises UnmeasuredError, and ResultsError for damaged histograms.
    """

    name: str
    unit: str
    lower_is_better: bool
    of: Callable[[Trial, SamplesReader], Reading]


@contextmanager
def decoding(trial_id: str) -> Iterator[None]:
    """Raises ResultsError for histograms that cannot be decoded."""
    try:
        yield
    except (ValueError, IndexError, zlib.error, HdrCookieException, HdrLengthException) as error:
        raise ResultsError(
            f"the histograms of trial {trial_id} are damaged: {error}",
            hint="Restore the folder, or measure it again.",
        ) from None


def samples_reader(read: HistogramReader) -> SamplesReader:
    """Reads each trial once, however many percentiles are asked for."""

    @cache
    def samples(trial_id: str, not_sent: int) -> Samples:
        with decoding(trial_id):
            return samples_of(read(trial_id).response_time, not_sent)

    return lambda trial: samples(trial.id, trial.outcomes["not_sent"])


def _throughput(trial: Trial, _read: SamplesReader) -> Reading:
    if not trial.outcomes["ok"]:
        raise UnmeasuredError("there was no right answer")
    if trial.probe:
        # What a search found is the rate of the arrivals, not how many came by chance.
        return Reading(trial.level * trial.rows_per_request)
    return Reading(trial.outcomes["ok"] / trial.window_s * trial.rows_per_request)


def _percentile(name: str, quantile: float, trial: Trial, read: SamplesReader) -> Reading:
    found = read(trial).percentile(quantile)
    if found is None:
        raise UnmeasuredError(
            f"a repeat has fewer than the {sample_floor(quantile):,} samples that {name} takes; "
            "measure longer windows"
        )
    if found.at_least:
        raise UnmeasuredError(f"{name} reached the time limit, so only its lower bound is known")
    return Reading(found.value / _NS_PER_MS)


def _memory(trial: Trial, _read: SamplesReader) -> Reading:
    if trial.server_rss_bytes is None:
        raise UnmeasuredError("the server's memory could not be read")
    return Reading(trial.server_rss_bytes / _BYTES_PER_MB)


def _energy(trial: Trial, _read: SamplesReader) -> Reading:
    use = trial.resources
    if use is None:
        raise UnmeasuredError("no energy was sampled")
    if use.energy is None or use.energy.joules_per_inference is None:
        told = [use.unmeasurable.get(f"energy{of}") for of in (".joules_per_inference", "")]
        raise UnmeasuredError(": ".join(["no energy could be read", *filter(None, told)]))
    return Reading(use.energy.joules_per_inference, basis=", ".join(use.energy.rails))


MEASURES: Mapping[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("throughput", "inferences/s", False, _throughput),
        *(
            Measure(name, "ms", True, partial(_percentile, name, quantile))
            for name, quantile in PERCENTILES.items()
        ),
        Measure("memory", "MB", True, _memory),
        Measure("joules", "J per inference", True, _energy),
    )
}


def find_measure(name: str) -> Measure:
    """Raises UsageError for an unknown name."""
    if name not in MEASURES:
        raise UsageError(f"there is no metric {name!r}", hint=f"Choose {', '.join(MEASURES)}.")
    return MEASURES[name]


def counted(trials: Sequence[Trial]) -> tuple[list[Trial], bool]:
    """The VALID repeats of a point, and whether it is VALID: most of its repeats must be."""
    valid = [trial for trial in trials if trial.verdict == "VALID"]
    return valid, 2 * len(valid) > len(trials)
