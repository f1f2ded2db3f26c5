"""A run for TensorBoard's HParams page: one entry per trial.

Repeats are entries of their own: TensorBoard would average those of a group, and percentiles are
never averaged. Its scalars are float32.
"""

from __future__ import annotations

from pathlib import Path

from loadtest.exporting.extras import needed
from loadtest.exporting.rows import table_of
from loadtest.folder import ResultsFolder
from loadtest.observing.openmetrics import Progress

EVENTS = "events.out.tfevents.*"
PARAMETERS = (
    *("backend", "scenario", "level", "repeat", "verdict"),
    *("model", "variant", "encoding", "rows_per_request", "server_cpus", "commit", "hostname"),
)
METRICS = (
    *("inferences_per_s", "response_p50_ms", "response_p99_ms", "response_p99_9_ms"),
    *("server_rss_bytes", "server_cpu_share", "energy.joules_per_inference"),
)


def write_tensorboard(folder: ResultsFolder, out: Path, progress: Progress) -> None:
    """A folder per trial below ``out``, each with one event file.

    Raises:
        MachineError: tensorboardX is not installed.
        ResultsError: the run is damaged, or holds no finished trial.
    """
    writer = needed("tensorboardX.writer", "tensorboard")
    summary = needed("tensorboardX.summary", "tensorboard")
    table = table_of(folder, progress)
    for row in table.rows:
        metrics = {name: row[name] for name in METRICS if row[name] is not None}
        parameters = {name: row[name] for name in PARAMETERS if row[name] is not None}
        events = writer.FileWriter(str(out / str(row["trial"])))
        try:
            for part in summary.hparams(parameters, metrics):
                events.add_summary(part, walltime=row["window_started_unix_s"])
            for name, value in metrics.items():
                scalar = summary.scalar(name, value)
                events.add_summary(scalar, 0, walltime=row["window_started_unix_s"])
        finally:
            events.close()
