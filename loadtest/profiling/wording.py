"""The answer in one sentence, and other texts of a profile. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from loadtest.profiling.record import Observer, RuntimeProfile, ServerProfile, TorchProfile
from loadtest.profiling.stacks import INFERENCE

_MOST_GROUPS = 3
_WORTH_TELLING = 0.05
_COSTLY = 0.2
_UNLIKE = 0.15
"""More than this between before and after is no matter of py-spy."""


def sentence_of(
    runtime: RuntimeProfile | None, torch: TorchProfile | None, server: ServerProfile | None
) -> str:
    """Which operator takes most, and what the server does besides inference."""
    parts = [*_operators(runtime, torch), *_samples(server)]
    if not parts:
        return "Nothing could be profiled."
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _operators(runtime: RuntimeProfile | None, torch: TorchProfile | None) -> Iterator[str]:
    if runtime is not None and runtime.by_type:
        first = runtime.by_type[0]
        yield f"{first.op_type} takes {first.share:.0%} of the time of all kernels in ONNX Runtime"
    elif torch is not None and torch.by_type:
        first = torch.by_type[0]
        yield f"{first.op_type} takes {first.share:.0%} of the time of all operators in PyTorch"


def _samples(server: ServerProfile | None) -> Iterator[str]:
    if server is None:
        return
    if not server.busy:
        yield f"{server.backend} was never seen at work"
        return
    shares = {group.name: group.share for group in server.groups}
    told = [f"{shares.pop(INFERENCE, 0.0):.0%} are in inference"]
    worth = [(name, share) for name, share in shares.items() if share >= _WORTH_TELLING]
    told += [f"{share:.0%} in {name}" for name, share in worth[: _MOST_GROUPS - 1]]
    yield f"of {server.backend}'s busy samples under load {', '.join(told)}"


def precision_text(server: ServerProfile) -> str:
    """How closely shares of so many samples are known, at best: neighbouring ones resemble."""
    if not server.busy:
        return "No thread was seen at work."
    # 95% of a share of one half, by the normal distribution: 1.96 * 0.5 / sqrt(n).
    points = 98 / math.sqrt(server.busy)
    return (
        f"Of {server.busy:,} busy samples, a share is known to {points:.1f} points at best (95%)."
    )


def observer_text(observer: Observer | None) -> str:
    """What sampling cost, and what to do where that is much."""
    if observer is None:
        return "What sampling cost the server is not known: the windows held no whole second."
    cost = 1 - observer.ratio
    told = f"{cost:.0%} slower" if cost >= 0.005 else "as fast as without"
    low, high = sorted((observer.before_rps, observer.after_rps))
    advice = ""
    if high - low > _UNLIKE * high:
        advice = " Before and after differ, so this is not known well: is the machine quiet?"
    elif cost >= _COSTLY:
        advice = " Lower --rate and raise --duration to disturb it less."
    return (
        f"While it was sampled the server was {told}: {observer.sampled_rps:,.1f} requests/s, "
        f"{observer.before_rps:,.1f} just before and {observer.after_rps:,.1f} after.{advice}"
    )
