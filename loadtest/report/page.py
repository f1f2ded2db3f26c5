"""Summary to one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from markupsafe import Markup

from loadtest.analysis import percentile_name
from loadtest.confidence import sample_floor
from loadtest.report import (
    breakdown,
    footprint,
    frames,
    numbers,
    resources,
    searching,
    shape_figures,
)
from loadtest.report.answer import SEARCHED, answer_of
from loadtest.report.drawn import figures_of
from loadtest.report.figures import NEUTRAL, styles
from loadtest.report.templates import template
from loadtest.report.verdicts import verdicts_of
from loadtest.results import Summary
from loadtest.scenarios import is_closed

RAW = {
    "summary.json": "everything that this page shows",
    "trials.jsonl": "one line per window",
    "starts.jsonl": "one line per start of a server",
    "manifest.json": "machine, versions, settings, checksums",
    "resources.jsonl": "CPU, memory, network, GPU and power, about every second",
    "histograms/": "HDR histograms of each window, per second and outcome",
    "logs/": "what servers and generators printed",
    "model_repository/": "the configuration that was served",
    "report.md": "this page in short, for a pull request",
}
"""In the results folder, beside the page."""

_SWATCH = Markup('<span class="swatch" style="--colour: {}" aria-hidden="true"></span>')
_TEMPLATE = Path(__file__).with_name("page.html.j2")


def render(summary: Summary) -> str:
    """The whole report; whatever a user may have written is escaped."""
    settings = summary.manifest.settings
    page: str = template(_TEMPLATE).render(
        summary=summary,
        manifest=summary.manifest,
        settings=settings,
        answer=answer_of(summary),
        answers=SEARCHED,
        levels=", ".join(f"{level:g}" for level in settings.levels) or "found by the searches",
        closed=is_closed(settings),
        swatch=_swatches(summary),
        figures=figures_of(summary),
        searched=searching.searched(summary),
        search_badges=searching.BADGES,
        latency_bounds=searching.latency_bounds,
        spectrum_rows=shape_figures.spectrum_rows(summary),
        heatmap_rows=shape_figures.heatmap_rows(summary),
        breakdown=breakdown.section_of(summary),
        frames=frames.frames_of(summary),
        resources=resources.section_of(summary),
        gpu_columns=resources.GPU_COLUMNS,
        footprints=footprint.footprints(summary),
        start_states=footprint.STATES,
        cold_start=footprint.cold_start,
        verdicts=verdicts_of(summary),
        configurations=_configurations(summary),
        raw=RAW,
        percentiles=[field for field, _ in numbers.PERCENTILES],
        floors=[
            (percentile_name(field), sample_floor(quantile))
            for field, quantile in numbers.PERCENTILES
        ],
        shared_cpus=set(settings.server_cpus) & set(settings.client_cpus),
        percentile_name=percentile_name,
        n=numbers,
    )
    return page


def _swatches(summary: Summary) -> Callable[[str], Markup]:
    """A backend's colour in front of its name."""
    known = styles(summary)

    def swatch(label: str) -> Markup:
        colour = known[label].colour if label in known else NEUTRAL
        return _SWATCH.format(colour)

    return swatch


def _configurations(summary: Summary) -> dict[str, list[str]]:
    """Served ``config.pbtxt`` to the backends that served it."""
    found: dict[str, list[str]] = {}
    for backend in summary.backends:
        if backend.configuration is not None:
            found.setdefault(backend.configuration, []).append(backend.label)
    return found
