"""One trial: a Locust process of its own on the client's CPUs, watched to its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from loadtest.analysis import judge
from loadtest.results import Histograms, Trial
from loadtest.trial import TrialOutput, TrialSpec
from serving.deployment import Server
from serving.errors import LoadError
from serving.process import RunningProcess

_LOCUSTFILE = Path(__file__).with_name("locustfile.py")
_START_ALLOWANCE_S = 60.0
_POLL_S = 0.05


def run_trial(
    spec: TrialSpec,
    server: Server,
    *,
    trial_id: str,
    repeat: int,
    client_cpus: Sequence[int],
    log: Path,
) -> tuple[Trial, Histograms]:
    """Load ``server`` for one window and judge it.

    Raises:
        LoadError: the generator itself failed; with the end of its log.
    """
    started = datetime.now().astimezone().isoformat(timespec="seconds")
    output = _generate(spec, client_cpus, log)
    judgement = judge(
        output,
        concurrency=spec.concurrency,
        client_cpus=len(client_cpus),
        server_ended=server.ended,
    )
    trial = Trial(
        id=trial_id,
        backend=server.launch.label,
        scenario="closed",
        concurrency=spec.concurrency,
        repeat=repeat,
        started=started,
        window_s=output.window_s,
        warmup_s=output.warmup_s,
        warmup_requests=output.warmup_requests,
        sent=output.sent,
        outcomes=output.outcomes,
        rows_per_request=1,
        mean_in_flight=output.mean_in_flight,
        client_cpu=output.client_cpu_s / (len(client_cpus) * output.window_s),
        server_cpu=None
        if output.server_cpu_s is None
        else output.server_cpu_s / (server.cpu_count * output.window_s),
        server_rss_bytes=output.server_rss_bytes,
        server_ended=server.ended,
        verdict=judgement.verdict,
        reasons=judgement.reasons,
        notes=judgement.notes,
    )
    return trial, Histograms(
        trial=trial_id, response_time=output.response_time, service_time=output.service_time
    )


def _generate(spec: TrialSpec, client_cpus: Sequence[int], log: Path) -> TrialOutput:
    spec.output.unlink(missing_ok=True)
    spec_file = spec.output.with_suffix(".spec.json")
    spec_file.write_text(spec.model_dump_json())
    argv = [
        *(sys.executable, "-m", "locust", "--headless", "-f", str(_LOCUSTFILE)),
        *("--host", spec.url, "--trial", str(spec_file)),
        *("--users", str(spec.concurrency), "--spawn-rate", str(spec.concurrency)),
        *("--only-summary", "--loglevel", "WARNING"),
    ]
    limit_s = _START_ALLOWANCE_S + 4 * spec.timeout_s + spec.warmup_s + spec.window_s
    end = time.monotonic() + limit_s
    # Locust reads a locust.conf where it starts; the log's folder has none.
    with RunningProcess(argv, cpus=client_cpus, log=log, cwd=log.parent) as generator:
        while generator.alive and time.monotonic() < end:
            time.sleep(_POLL_S)
        if generator.alive:
            raise LoadError(
                f"the load generator did not end within {limit_s:g} s",
                hint=f"Its log is {log}.",
            )
        if not spec.output.is_file():
            raise LoadError(
                f"the load generator {generator.ended()} without a result",
                hint=f"Its log {log} ends with:\n{generator.log_tail()}",
            )
    return TrialOutput.model_validate_json(spec.output.read_bytes())
