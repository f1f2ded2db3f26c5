"""What is measured of real processes here, against what they know of themselves."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

from loadtest.resources.log import read_samples
from loadtest.resources.record import ResourceUse, Sample
from loadtest.resources.sampler import Sampler

BURNT_S = 1.0
ALLOCATED_BYTES = 64 << 20
THREADS, NAPS = 4, 100

CHILD = f"""
import json, os, resource, sys, threading, time

def cpu_s():
    times = os.times()
    return times.user + times.system

def nap(done, end):
    for _ in range({NAPS}):
        time.sleep(0.0005)
    done.release()
    end.wait()

print("ready", flush=True)
sys.stdin.readline()
begun_s, before = cpu_s(), resource.getrusage(resource.RUSAGE_SELF)
held = b"x" * {ALLOCATED_BYTES}
done, end = threading.Semaphore(0), threading.Event()
for _ in range({THREADS}):
    threading.Thread(target=nap, args=(done, end), daemon=True).start()
while cpu_s() - begun_s < {BURNT_S}:
    pass
for _ in range({THREADS}):
    done.acquire()
after = resource.getrusage(resource.RUSAGE_SELF)
used = {{"cpu_s": cpu_s() - begun_s, "voluntary": after.ru_nvcsw - before.ru_nvcsw}}
print(json.dumps(used), flush=True)
sys.stdin.readline()
"""


@dataclass(frozen=True)
class Measured:
    """What the child knows of itself, and what was measured of it in the same window."""

    own: dict[str, float]
    use: ResourceUse
    before: Sample
    samples: list[Sample]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    path = tmp_path_factory.mktemp("resources") / "resources.jsonl"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child, Sampler(path, interval_s=0.2) as sampler:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        sampler.watch("child", child.pid)
        before = sampler.latest
        assert before is not None
        start_unix_s = time.time()
        child.stdin.write("go\n")
        child.stdin.flush()
        own = json.loads(child.stdout.readline())
        use = sampler.use(start_unix_s, time.time(), inferences=1)
        child.stdin.close()
    assert sampler.ended is None
    return Measured(own, use, before, read_samples(path))


def test_cpu_time_is_what_the_process_says_of_itself(measured: Measured) -> None:
    cores = measured.use.roles["server"].cpu_cores
    assert cores is not None
    assert cores * measured.use.window_s == pytest.approx(measured.own["cpu_s"], rel=0.1)


def test_memory_that_was_allocated_shows_in_what_the_process_alone_holds(
    measured: Measured,
) -> None:
    before = measured.before.roles["server"]
    peak = measured.use.roles["server"]
    assert before.pss_bytes is not None
    assert peak.pss_peak_bytes is not None
    assert peak.rss_peak_bytes is not None
    grown = peak.pss_peak_bytes - before.pss_bytes
    assert grown == pytest.approx(ALLOCATED_BYTES, rel=0.1)
    assert peak.rss_peak_bytes >= peak.pss_peak_bytes


def test_context_switches_of_all_threads_are_counted(measured: Measured) -> None:
    """The naps are those of threads; the first thread hardly ever waits."""
    rate = measured.use.roles["server"].voluntary_switches_per_s
    assert rate is not None
    counted = rate * measured.use.window_s
    assert counted >= THREADS * NAPS * 0.9
    assert counted == pytest.approx(measured.own["voluntary"], rel=0.1)
    assert measured.use.roles["server"].threads_peak == 1 + THREADS


def test_the_child_is_no_part_of_the_generator(measured: Measured) -> None:
    generator = measured.use.roles["generator"].cpu_cores
    assert generator is not None
    assert generator * measured.use.window_s < measured.own["cpu_s"] / 2


def test_samples_lie_in_the_file_and_what_sampling_used_is_told(measured: Measured) -> None:
    """At its beginning, at its end, and by itself in between."""
    watched = [sample for sample in measured.samples if sample.backend == "child"]
    assert len(watched) > 2
    assert measured.use.samples > 0
    assert measured.use.sampling_cores is not None
    assert measured.use.sampling_cores > 0
    assert measured.use.cores
    assert "lo" in measured.use.network
