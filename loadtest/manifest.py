"""The manifest: what this machine is and what exactly will be run on it."""

from __future__ import annotations

import platform
import socket
import subprocess
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from loadtest.links.crossing import require_in_time
from loadtest.links.profile import link_profile
from loadtest.links.told import record_of, text_of
from loadtest.prepare import payloads_from
from loadtest.results import LinkRecord, Machine, Manifest, Settings, Wire
from serving.host import cpu_budget, cpu_model, gpus, memory_bytes
from serving.models.repository import Model
from serving.models.samples import samples_for
from serving.models.variants.parameters import read_record, require_own_file
from serving.models.variants.record import VariantRecord
from serving.parity import Reference

_PACKAGES = (
    *("onnxruntime-gpu", "onnxruntime", "torch", "locust", "fastapi", "gunicorn", "uvicorn"),
    *("uvloop", "httptools", "tritonclient", "numpy", "pillow", "hdrhistogram"),
)


def describe_machine() -> Machine:
    budget = cpu_budget()
    return Machine(
        hostname=socket.gethostname(),
        os=_os_name(),
        python=platform.python_version(),
        cpu_model=cpu_model(),
        usable_cpus=budget.usable,
        cpu_source=budget.source,
        memory_bytes=memory_bytes(),
        gpus=tuple(gpu.name for gpu in gpus().gpus),
    )


def describe_run(model: Model, settings: Settings, command: str) -> Manifest:
    """The manifest of a run that starts now.

    Raises:
        ModelError: the model is a variant whose accuracy was measured on another file.
        UsageError: the link does not exist, or is too slow for one request within the timeout.
    """
    checksum = model.sha256()
    sample = samples_for(model)[0]
    rows = Reference((sample,) * settings.batch_size, ({},) * settings.batch_size)
    payload = payloads_from(model, rows, encoding=settings.encoding, rows=settings.batch_size)[0]
    link = _link(settings, len(payload.body))
    return Manifest(
        created=datetime.now().astimezone().isoformat(timespec="seconds"),
        command=command,
        infersweep_version=version("infersweep"),
        commit=_commit(),
        machine=describe_machine(),
        versions=dict(_versions()),
        settings=settings,
        model_version=model.version,
        model_sha256=checksum,
        variant=_variant(model, checksum),
        wire=describe_wire(settings, len(payload.body), link),
        link=link,
    )


def _link(settings: Settings, request_bytes: int) -> LinkRecord | None:
    if settings.link is None:
        return None
    profile = link_profile(settings.link)
    require_in_time(profile, request_bytes, settings.timeout_s)
    return record_of(profile, each_connection=settings.link_per_connection)


def _variant(model: Model, checksum: str) -> VariantRecord | None:
    record = read_record(model.config)
    if record is not None:
        require_own_file(record, model, checksum)
    return record


def _caller(settings: Settings) -> str:
    if settings.driver == "loadgen":
        return "MLPerf LoadGen with threads of Python"
    return f"{settings.engine} engine"


def describe_wire(settings: Settings, request_bytes: int, link: LinkRecord | None = None) -> Wire:
    """How requests of these settings travel, in words."""
    grpc = settings.encoding == "grpc"
    encoding = {"binary": "binary tensors", "json": "JSON", "grpc": "raw tensors"}
    carried = ", inputs in system shared memory" if settings.shared_memory else ""
    return Wire(
        protocol="v2 gRPC" if grpc else "v2 HTTP",
        encoding=encoding[settings.encoding] + carried,
        connections="one per request in flight, kept alive",
        call_style=f"prepared bytes, {_caller(settings)}",
        link=text_of(link),
        request_bytes=0 if settings.shared_memory else request_bytes,
    )


def _versions() -> Iterator[tuple[str, str]]:
    for package in _PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            continue


def _os_name() -> str:
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, Linux {platform.release()}"
    except OSError:
        return f"{platform.system()} {platform.release()}"


def _commit() -> str | None:
    """The checkout's commit, ``None`` outside one; ``+`` marks uncommitted changes."""
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
