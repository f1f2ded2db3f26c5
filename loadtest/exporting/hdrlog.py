"""A run as an HdrHistogram log: every second of every window, with its time.

The format is 1.3 of HdrHistogram's ``HistogramLogWriter`` (https://github.com/HdrHistogram), with
tags; a reader of 1.2 reads it too. Histograms are of nanoseconds and are taken over as they were
recorded; the log's column ``Interval_Max`` is in milliseconds, as that writer has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import BinaryIO

from loadtest.folder import ResultsFolder
from loadtest.histogram import merge
from loadtest.measures import decoding
from loadtest.observing.finished import MeasuredWindow, read_run
from loadtest.observing.openmetrics import Progress
from loadtest.results import OUTCOMES

_LEGEND = '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'
_NS_PER_MS = 1e6
_NO_TAG = re.compile(r"[\s,]+")


def write_hdrlog(folder: ResultsFolder, stream: BinaryIO, progress: Progress) -> None:
    """One line per second, kind of time, and outcome that had any, by rising start.

    The tag is ``backend/level/response/outcome`` or ``.../service/...``; repeats are told apart by
    their times.

    Raises:
        ResultsError: as ``read_run`` does, and when a trial's histograms are damaged.
    """
    run = read_run(folder)
    windows = sorted(
        chain.from_iterable(target.windows for target in run.targets),
        key=lambda window: window.start_ms,
    )
    start_s = windows[0].start_ms / 1e3
    told = datetime.fromtimestamp(start_s, UTC)
    head = (
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {start_s:.3f} (seconds since epoch), {told:%a %b %d %H:%M:%S UTC %Y}]",
        "#[BaseTime: 0.000 (seconds since epoch)]",
        _LEGEND,
    )
    stream.writelines(f"{line}\n".encode() for line in head)
    for done, window in enumerate(windows, 1):
        with decoding(window.trial.id):
            stream.writelines(f"{line}\n".encode() for line in _lines(window))
        progress(done, len(windows))


def _lines(window: MeasuredWindow) -> Iterator[str]:
    histograms, trial = window.histograms(), window.trial
    start = f"{_NO_TAG.sub('_', trial.backend)}/{trial.level:g}"
    starts_ms = (window.start_ms, *window.ticks_ms[:-1])
    kinds = {"response": histograms.response_time, "service": histograms.service_time}
    for second, (start_ms, end_ms) in enumerate(zip(starts_ms, window.ticks_ms, strict=True)):
        for kind, windows in kinds.items():
            for outcome in OUTCOMES:
                if encoded := windows[second].get(outcome):
                    largest_ms = merge([encoded]).get_max_value() / _NS_PER_MS
                    yield (
                        f"Tag={start}/{kind}/{outcome},{start_ms / 1e3:.3f},"
                        f"{(end_ms - start_ms) / 1e3:.3f},{largest_ms:.3f},{encoded}"
                    )
