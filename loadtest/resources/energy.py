"""Which rails together are the machine, so that no part is added to its whole. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from loadtest.resources.rails import INA3221, NVML, RAPL, TEGRASTATS

_JETSON_WHOLES = (
    ("VDD_IN",),
    ("POM_5V_IN",),
    ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"),
    ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"),
)
"""Rails of the INA3221 that are all of a Jetson module's input.

``VDD_IN`` (TX2, Xavier NX, Orin Nano, Orin NX) and ``POM_5V_IN`` (Nano) are the input itself; the
others of those boards are parts of it. AGX Orin has no such rail: its inputs are three, and
``VDDQ_VDD2_1V8AO`` is fed from ``VIN_SYS_5V0``. AGX Xavier has six. Source: NVIDIA, *Jetson Linux
Developer Guide*, "Platform Power and Performance", "Software-Based Power Consumption Modeling" of
each series (https://docs.nvidia.com/jetson/archives/r36.4.3/DeveloperGuide), and for AGX Xavier
figure 5-14 of its *Product Design Guide* (DG-09840).
"""


def whole(rails: Collection[str]) -> tuple[str, ...]:
    """Of all rails, readable or not, those whose sum is the machine; empty where nobody knows.

    - A Jetson: its module's input. The GPU is in it.
    - Else the packages, the DRAM beside them, and GPUs. Cores and uncore are parts of a package,
      DRAM is not (Intel, *Software Developer's Manual* volume 3, "RAPL Domains").
    - Without a GPU ``psys`` alone, where there is one: the platform, with all of these in it.
      Whether a GPU in a slot is part of it depends on the board, so it does not count beside one.
    """
    for source in (INA3221, TEGRASTATS):
        if any(rail.startswith(f"{source}:") for rail in rails):
            return _jetson(rails, source)
    gpus = sorted(rail for rail in rails if rail.startswith(f"{NVML}:"))
    processor = sorted(rail for rail in rails if _is_package(rail) or _is_dram(rail))
    platform = sorted(rail for rail in rails if rail.startswith(f"{RAPL}:psys"))
    if platform and not (gpus and processor):
        return tuple(platform)
    return (*processor, *gpus)


def _jetson(rails: Iterable[str], source: str) -> tuple[str, ...]:
    for labels in _JETSON_WHOLES:
        names = tuple(f"{source}:{label}" for label in labels)
        if set(names) <= set(rails):
            return names
    return ()


def _is_package(rail: str) -> bool:
    return rail.startswith(f"{RAPL}:package") and "/" not in rail


def _is_dram(rail: str) -> bool:
    return rail.startswith(f"{RAPL}:package") and rail.endswith("/dram")
