"""The same link in the kernel: ``tc qdisc ... netem`` on the two ends of a virtual Ethernet pair.

netem shapes what leaves a device, so the uplink is set on the client's end and the downlink on the
server's. With a rate it keeps packets in order in spite of jitter (sch_netem.c: the last packet in
the queue is the reference point). It drops packets for real; TCP repairs them.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Sequence

from loadtest.links.model import SEGMENT_BYTES
from loadtest.links.profile import LinkProfile
from serving.errors import MachineError, UsageError

QUEUE_S = 0.1
"""What may wait at the bottleneck, as in the relay (an assumption)."""
_FRAME_BYTES = 1514
_RELAY = "Use the relay (python -m loadtest.links.relay): it needs neither."
_PROBE = (
    ("unshare", "--user", "--map-root-user", "--net"),
    ("unshare", "--net"),
)


def commands(profile: LinkProfile, uplink_device: str, downlink_device: str) -> tuple[str, ...]:
    """The lines that make the devices a link of this profile; each needs root.

    Raises:
        UsageError: the profile has outages or a stall of its own; netem knows neither.
    """
    unknown = {"outages": profile.outages.exist, "a stall_ms": profile.stall_ms is not None}
    for name, given in unknown.items():
        if given:
            raise UsageError(
                f"link profile {profile.name} has {name}, and tc netem cannot do that",
                hint="Use the relay for this profile.",
            )
    return tuple(
        f"tc qdisc replace dev {device} root netem {_options(profile, rate_bps)}"
        for device, rate_bps in (
            (uplink_device, profile.uplink_bps),
            (downlink_device, profile.downlink_bps),
        )
    )


def undoing(uplink_device: str, downlink_device: str) -> tuple[str, ...]:
    """The lines that take the link away again."""
    return tuple(f"tc qdisc del dev {device} root" for device in (uplink_device, downlink_device))


def _options(profile: LinkProfile, rate_bps: float) -> str:
    """Delay, loss, rate and queue; the rate counts whole frames, the profile's only their load."""
    frames_bps = rate_bps * _FRAME_BYTES / SEGMENT_BYTES
    held_s = QUEUE_S + (profile.one_way_delay_ms + profile.jitter_ms) / 1e3
    options = [f"delay {profile.one_way_delay_ms:g}ms"]
    if profile.jitter_ms:
        options.append(f"{profile.jitter_ms:g}ms")
    if profile.loss_share:
        options.append(f"loss random {profile.loss_share:.6%}")
    options.append(f"rate {frames_bps:.0f}bit")
    options.append(f"limit {math.ceil(rate_bps / 8 * held_s / SEGMENT_BYTES)}")
    return " ".join(options)


def require_netem() -> None:
    """Try netem on the loopback of a network namespace that ends with the trial.

    Raises:
        MachineError: the kernel has no netem, or this user may not use it; with tc's own words.
    """
    said = ""
    for namespace in _PROBE:
        ended, said = _try((*namespace, "tc", "qdisc", "add", "dev", "lo", "root", "netem"))
        if ended:
            return
    raise MachineError(f"tc netem cannot be used on this machine: {said}", hint=_RELAY)


def _try(argv: Sequence[str]) -> tuple[bool, str]:
    """Whether it worked, and the last line that it said."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    lines = done.stderr.strip().splitlines()
    return done.returncode == 0, lines[-1].rstrip(
        "."
    ) if lines else f"exit status {done.returncode}"
