"""Whether a window measured the relay rather than the link. Pure but for reading its CPU time."""

from __future__ import annotations

from loadtest.links.running import RunningLink
from loadtest.results import Trial

CPU_LIMIT = 0.90


def unless_link_bound(trial: Trial, link: RunningLink, client_cpus: int) -> Trial:
    """The trial, INVALID where the relay had not the CPU that it needed.

    It is one thread on the generator's CPUs, so both limits count: one CPU, and what they share.
    """
    start_s = trial.window_started_unix_s
    relay = link.cpu_share(start_s, trial.window_s) if start_s is not None else None
    reason = link_bound(relay, trial.client_cpu, client_cpus)
    if not reason:
        return trial
    return trial.model_copy(update={"verdict": "INVALID", "reasons": (*trial.reasons, reason)})


def link_bound(relay: float | None, generator: float, client_cpus: int) -> str:
    """Why a window is the relay's, empty where it is not or the relay's share is not known.

    ``relay`` is a share of one CPU, ``generator`` one of all ``client_cpus``.
    """
    if relay is None:
        return ""
    if relay > CPU_LIMIT:
        return f"link-bound: the relay used {relay:.0%} of a CPU"
    together = relay / client_cpus + generator
    if together > CPU_LIMIT:
        return (
            f"link-bound: the relay and the generator used {together:.0%} of the client's CPU "
            f"together"
        )
    return ""
