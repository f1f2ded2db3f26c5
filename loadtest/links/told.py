"""A link as it is recorded and shown: every value with its source. Pure."""

from __future__ import annotations

from loadtest.links.profile import LinkProfile, Outages
from loadtest.results import LinkRecord

_SOURCED = ("one_way_delay_ms", "jitter_ms", "loss_share", "stall_ms", "uplink_bps", "downlink_bps")


def record_of(profile: LinkProfile, *, each_connection: bool) -> LinkRecord:
    values = {name: getattr(profile, name) for name in _SOURCED}
    sources = {
        name: profile.source_of(name)
        for name in (*_SOURCED, "outages")
        if values.get(name) is not None or name in profile.sources or name == "outages"
    }
    return LinkRecord(
        name=profile.name,
        **values,
        outages=_outages(profile.outages),
        each_connection=each_connection,
        sources=sources,
        facts=_facts(profile, sources, each_connection=each_connection),
    )


def text_of(link: LinkRecord | None) -> str:
    """Everything that makes another link of it, in one line; ``none`` where there is none."""
    if link is None:
        return "none"
    values = {name: value for name, value in link.facts.items() if name != "Link"}
    told = ", ".join(f"{name.lower()} {_value(value)}" for name, value in values.items())
    return f"{link.name}: {told}"


def _value(fact: str) -> str:
    """Without the source behind it."""
    return fact.partition(" (")[0]


def _facts(
    profile: LinkProfile, sources: dict[str, str], *, each_connection: bool
) -> dict[str, str]:
    stall = "" if profile.stall_ms is None else f", {profile.stall_ms:g} ms late"
    values = {
        "one_way_delay_ms": ("One-way delay", f"{profile.one_way_delay_ms:g} ms"),
        "jitter_ms": ("Jitter", f"± {profile.jitter_ms:g} ms"),
        "loss_share": ("Loss", f"{profile.loss_share:.2%} of segments{stall}"),
        "uplink_bps": ("Uplink", _rate(profile.uplink_bps)),
        "downlink_bps": ("Downlink", _rate(profile.downlink_bps)),
        "outages": ("Outages", _outages(profile.outages)),
    }
    shared = "by none: each connection has its own" if each_connection else "by all connections"
    return {
        "Link": profile.name,
        **{name: f"{told} ({sources[field]})" for field, (name, told) in values.items()},
        "Shared": shared,
    }


def _rate(bps: float) -> str:
    return f"{bps / 1e6:g} Mbps"


def _outages(outages: Outages) -> str:
    if outages.periods_s:
        return ", ".join(f"{length:g} s at {start:g} s" for start, length in outages.periods_s)
    if outages.exist:
        return f"of {outages.mean_length_s:g} s every {outages.mean_between_s:g} s on average"
    return "none"
