"""Under what conditions a figure was measured: only under equal ones may two be compared. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from loadtest.links.load import FACT as LINK
from loadtest.results import BackendRecord, Manifest
from serving.backends import remote
from serving.backends.registry import resolve

Conditions = Mapping[str, str]
"""A condition's name to its value, in words."""

_FREE = frozenset(
    {"model", "backends", "levels", "repeats", "seed", "slo_ms", "rank_unlike", "link"}
)
"""Settings that may differ: what is tested, which points there are, and chance. What a link does
is told by the wire, whatever its file is called."""
_WIRE = ("protocol", "encoding", "compression", "connections", "call_style", "link")
_OF_BACKEND = ("provider", "onnxruntime backend")
_GIB = 2**30


def conditions(manifest: Manifest) -> Conditions:
    """Machine, settings, wire and precision.

    The model's name and checksum are none, nor are versions of programs: they are what is tested.
    """
    machine, settings = manifest.machine, manifest.settings
    return {
        "host": machine.hostname,
        "CPU": machine.cpu_model,
        "usable CPUs": str(machine.usable_cpus),
        # The kernel keeps a little more or less for itself from one boot to the next.
        "memory": f"{machine.memory_bytes / _GIB:.0f} GiB",
        "GPUs": ", ".join(machine.gpus) or "none",
        **{
            name: _told(value) for name, value in settings.model_dump().items() if name not in _FREE
        },
        **{f"wire {name}": getattr(manifest.wire, name) for name in _WIRE},
        "precision": manifest.variant.kind if manifest.variant else "the model's own",
    }


def conditions_of_backend(record: BackendRecord | None) -> Conditions:
    """What served, as far as it makes another server of it; empty where nothing is known."""
    facts = record.facts if record else {}
    return {name: facts[name] for name in _OF_BACKEND if name in facts}


def unlike_servers(
    labels: Sequence[str], records: Mapping[str, BackendRecord]
) -> Mapping[str, str]:
    """Backends that serve under other conditions than the first of them, and what differs.

    Within a run the wire, the batch, the model and the CPUs are the same for all servers that this
    run starts. Of one that was running already nobody here knows its CPUs or its precision.
    """
    if not labels:
        return {}
    found = {
        label: "; ".join(_shared_differences(labels[0], label, records)) for label in labels[1:]
    }
    return {
        label: f"it was not served under the conditions of {labels[0]}: {told} "
        "(--rank-unlike ranks it nevertheless)"
        for label, told in found.items()
        if told
    }


def _shared_differences(
    one: str, other: str, records: Mapping[str, BackendRecord]
) -> Iterator[str]:
    """Only of what both tell."""
    left, right = _served(one, records), _served(other, records)
    both = left.keys() & right.keys()
    return differences(
        {name: left[name] for name in left if name in both},
        {name: right[name] for name in right if name in both},
    )


def _served(label: str, records: Mapping[str, BackendRecord]) -> Conditions:
    record = records.get(label)
    facts = record.facts if record else {}
    mine = resolve(label)[0] is not remote.BACKEND
    return {
        "CPU share": "the run's" if mine else "unknown",
        "precision": "the model's" if mine else "unknown",
        "link": facts.get(LINK, "none"),
        **{name: facts[name] for name in ("provider",) if name in facts},
    }


def tested(manifest: Manifest) -> Conditions:
    """What may differ and should be known beside a comparison."""
    return {
        "model": f"{manifest.settings.model}, version {manifest.model_version}",
        "checksum": manifest.model_sha256[:12],
        "infersweep": manifest.infersweep_version,
        "commit": manifest.commit or "unknown",
        "system": manifest.machine.os,
        "Python": manifest.machine.python,
        "seed": str(manifest.settings.seed),
        **manifest.versions,
    }


def tested_of_backend(record: BackendRecord | None) -> Conditions:
    facts = record.facts if record else {}
    return {name: value for name, value in facts.items() if name not in _OF_BACKEND}


def differences(before: Conditions, after: Conditions) -> Iterator[str]:
    """Such as ``encoding: binary against json``, in the order of both."""
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name, "unknown"), after.get(name, "unknown")
        if one != other:
            yield f"{name}: {one} against {other}"


def _told(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items()) or "none"
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
