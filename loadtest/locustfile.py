"""The generator process: Locust with one closed-loop trial, from warm-up to the written output.

Run by ``loadtest.runner`` as ``locust -f loadtest/locustfile.py --headless --trial SPEC``.
"""

from __future__ import annotations

import resource
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import gevent
from locust import events
from locust.env import Environment

from loadtest.payload import read_payloads
from loadtest.recorder import Recorder
from loadtest.trial import TrialOutput, TrialSpec
from loadtest.users import InferenceUser, Session
from serving.process import family, family_cpu_time_s, family_rss_bytes

_POLL_S = 0.02


@events.init_command_line_parser.add_listener
def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--trial", type=Path, required=True, help="trial specification, JSON")


@events.init.add_listener
def _read_trial(environment: Environment, **_: Any) -> None:
    spec = TrialSpec.model_validate_json(environment.parsed_options.trial.read_text())
    InferenceUser.session = Session(spec, read_payloads(spec.payloads))


@events.spawning_complete.add_listener
def _drive(**_: Any) -> None:
    gevent.spawn(_measure, InferenceUser.session)


def _measure(session: Session) -> None:
    """Warm up, measure one window, wait for what is in flight, write the output."""
    spec = session.spec
    begun = time.monotonic()
    give_up = begun + spec.warmup_s + 2 * spec.timeout_s
    while time.monotonic() < begun + spec.warmup_s or (
        session.replies_of_slowest() < 2 and time.monotonic() < give_up
    ):
        gevent.sleep(_POLL_S)
    before = _server_processes(spec.server_pid)
    warmup_requests, warmup_s = len(session.recorder), time.monotonic() - begun
    server_cpu_s, client_cpu_s = _server_cpu_s(spec.server_pid), _own_cpu_s()
    start_ns = time.monotonic_ns()
    end_ns = session.end_ns = start_ns + int(spec.window_s * 1e9)
    gevent.sleep(spec.window_s)
    client_cpu_s, elapsed_s = _own_cpu_s() - client_cpu_s, (time.monotonic_ns() - start_ns) / 1e9
    server_cpu_s = _server_cpu_s(spec.server_pid) - server_cpu_s
    rss_bytes = family_rss_bytes(spec.server_pid) if spec.server_pid else None
    lost = before - _server_processes(spec.server_pid)
    _wait_for_replies(session)
    measured = session.recorder.measure(start_ns, end_ns)
    output = TrialOutput(
        window_s=spec.window_s,
        warmup_s=warmup_s,
        warmup_requests=warmup_requests,
        **vars(measured),
        # The sampling woke up a little late; what was used belongs to that longer stretch.
        client_cpu_s=client_cpu_s * spec.window_s / elapsed_s,
        server_cpu_s=server_cpu_s * spec.window_s / elapsed_s if spec.server_pid else None,
        server_rss_bytes=rss_bytes,
        lost_server_pids=tuple(sorted(lost)),
    )
    spec.output.write_text(output.model_dump_json())
    session.users[0].environment.runner.quit()


def _wait_for_replies(session: Session) -> None:
    """Requests still open after the time limit are recorded as unfinished."""
    deadline = time.monotonic() + session.spec.timeout_s + 1.0
    while any(_open(session)) and time.monotonic() < deadline:
        gevent.sleep(_POLL_S)
    now_ns = time.monotonic_ns()
    recorder: Recorder = session.recorder
    for since_ns in _open(session):
        recorder.record(since_ns, since_ns, now_ns, "unfinished")


def _open(session: Session) -> list[int]:
    return [
        user.in_flight_since_ns for user in session.users if user.in_flight_since_ns is not None
    ]


def _server_processes(pid: int | None) -> set[int]:
    return {process.pid for process in family(pid)} if pid else set()


def _server_cpu_s(pid: int | None) -> float:
    return family_cpu_time_s(pid) if pid else 0.0


def _own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
