"""What a network link does to what passes it: profiles that have a name, or come from a file."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from serving.errors import UsageError

ASSUMPTION = "assumption"
_MIN_RTO_MS = 200.0
_HINT = "Correct the link profile; docs/links.md says what each value means."


@dataclass(frozen=True)
class Outages:
    """When nothing passes, in both directions, counted from the start of the link.

    Either ``periods_s``, each (start, length), or exponential times of these means between the
    end of one outage and the start of the next, and of outages.
    """

    periods_s: tuple[tuple[float, float], ...] = ()
    mean_between_s: float | None = None
    mean_length_s: float | None = None

    @property
    def exist(self) -> bool:
        return bool(self.periods_s) or self.mean_between_s is not None


@dataclass(frozen=True)
class LinkProfile:
    """One link between a client (its uplink sends) and a server.

    The delay of a segment is ``one_way_delay_ms`` and up to ``jitter_ms`` less or more, uniformly.
    Rates are of application bytes. ``stall_ms`` is how long the bytes of a lost segment are late;
    ``None`` follows from the round trip. ``sources`` says where each value is from.

    Raises:
        UsageError: a value that no link has.
    """

    name: str
    one_way_delay_ms: float
    uplink_bps: float
    downlink_bps: float
    jitter_ms: float = 0.0
    loss_share: float = 0.0
    stall_ms: float | None = None
    outages: Outages = Outages()
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wrong = _impossible(self)
        if wrong:
            raise UsageError(f"link profile {self.name}: {wrong}", hint=_HINT)

    def source_of(self, name: str) -> str:
        return self.sources.get(name, ASSUMPTION)

    @property
    def round_trip_ms(self) -> float:
        """Of a message without length."""
        return 2 * self.one_way_delay_ms

    @property
    def fast_stall_ms(self) -> float:
        """How late a lost segment is that others follow: RFC 5681, 3.2, fast retransmit."""
        return self.round_trip_ms if self.stall_ms is None else self.stall_ms

    @property
    def timeout_stall_ms(self) -> float:
        """How late one is that nothing follows: the retransmission timeout of RFC 6298, 2.3.

        With the minimum of 200 ms that Linux has in place of the RFC's second.
        """
        if self.stall_ms is not None:
            return self.stall_ms
        return max(_MIN_RTO_MS, self.round_trip_ms + 4 * self.jitter_ms)


def _impossible(profile: LinkProfile) -> str:
    """Why there is no such link; empty where there is one."""
    outages = profile.outages
    numbers = {
        name: getattr(profile, name)
        for name in ("one_way_delay_ms", "jitter_ms", "loss_share", "stall_ms")
    } | {f"outages.{name}": getattr(outages, name) for name in ("mean_between_s", "mean_length_s")}
    for name, value in numbers.items():
        if value is not None and not (math.isfinite(value) and value >= 0):
            return f"{name} is {value:g}, and must be 0 or more"
    for name in ("uplink_bps", "downlink_bps"):
        value = getattr(profile, name)
        if not (math.isfinite(value) and value > 0):
            return f"{name} is {value:g}, and must be above 0"
    if profile.loss_share >= 1:
        return f"loss_share is {profile.loss_share:g}, and must be below 1"
    if profile.jitter_ms > profile.one_way_delay_ms:
        return (
            f"jitter_ms {profile.jitter_ms:g} is above one_way_delay_ms "
            f"{profile.one_way_delay_ms:g}: some bytes would arrive before they were sent"
        )
    return _impossible_outages(outages)


def _impossible_outages(outages: Outages) -> str:
    if (outages.mean_between_s is None) != (outages.mean_length_s is None):
        return "outages need both mean_between_s and mean_length_s"
    if outages.mean_between_s is not None:
        if outages.periods_s:
            return "outages are given as periods_s and as means; only one of them can hold"
        if not outages.mean_between_s or not outages.mean_length_s:
            return "outages.mean_between_s and outages.mean_length_s must be above 0"
    end_s = 0.0
    for start_s, length_s in outages.periods_s:
        if not (math.isfinite(start_s + length_s) and length_s > 0 and start_s >= end_s):
            return (
                f"the outage at {start_s:g} s of {length_s:g} s has no length above 0, "
                f"or starts before the one in front of it ends"
            )
        end_s = start_s + length_s
    return ""


_WEBPAGETEST = "WebPageTest, connectivity.ini.sample, [LTE]: 12 Mbps each way, 70 ms RTT, plr 0"
_LIGHTHOUSE = (
    "Lighthouse, docs/throttling.md, mobileSlow4G: 150 ms RTT, 1.6 Mbps, 750 kbps, no loss"
)
_FIREFOX = "Firefox, network monitor, throttling, Wi-Fi: 30 Mbps down, 15 Mbps up"
_KOTTKAMP = (
    "M. Kottkamp (Rohde & Schwarz), 5G NR and LTE latency analysis in a public network, 2022: "
    "one way from 7 ms (best, downlink) to 18 ms (worst, uplink); here their middle and half"
)
_OOKLA_SA = "Ookla and Omdia, global 5G SA report, Q4 2025: median 269.51 Mbps"
_OOKLA_UP = "Ookla, The state of 5G worldwide in 2021, Q3 2021: median upload 21.08 Mbps"

NAMED: Mapping[str, LinkProfile] = {
    profile.name: profile
    for profile in (
        LinkProfile(
            name="wifi",
            one_way_delay_ms=2.0,
            jitter_ms=1.0,
            loss_share=0.001,
            uplink_bps=15e6,
            downlink_bps=30e6,
            sources={
                "one_way_delay_ms": f"{_FIREFOX}, 2 ms, taken as one way ({ASSUMPTION})",
                "uplink_bps": _FIREFOX,
                "downlink_bps": _FIREFOX,
            },
        ),
        LinkProfile(
            name="5g-sa",
            one_way_delay_ms=10.0,
            jitter_ms=4.0,
            loss_share=0.0001,
            uplink_bps=21.08e6,
            downlink_bps=269.51e6,
            sources={
                "uplink_bps": f"{_OOKLA_UP}, of all 5G ({ASSUMPTION}: SA is no slower)",
                "downlink_bps": _OOKLA_SA,
            },
        ),
        LinkProfile(
            name="5g-nsa",
            one_way_delay_ms=12.5,
            jitter_ms=5.5,
            loss_share=0.0001,
            uplink_bps=21.08e6,
            downlink_bps=177.3e6,
            sources={
                "one_way_delay_ms": _KOTTKAMP,
                "jitter_ms": _KOTTKAMP,
                "uplink_bps": _OOKLA_UP,
                "downlink_bps": f"{_OOKLA_SA}, 52% above NSA",
            },
        ),
        LinkProfile(
            name="lte",
            one_way_delay_ms=35.0,
            jitter_ms=5.0,
            uplink_bps=12e6,
            downlink_bps=12e6,
            sources={
                "one_way_delay_ms": f"{_WEBPAGETEST}; half of it",
                "jitter_ms": f"{ASSUMPTION}: a wait of 0 to 10 ms for the next scheduling request",
                "loss_share": _WEBPAGETEST,
                "uplink_bps": _WEBPAGETEST,
                "downlink_bps": _WEBPAGETEST,
            },
        ),
        LinkProfile(
            name="slow-4g",
            one_way_delay_ms=75.0,
            jitter_ms=10.0,
            uplink_bps=750e3,
            downlink_bps=1.6e6,
            sources={
                "one_way_delay_ms": f"{_LIGHTHOUSE}; half of it",
                "loss_share": _LIGHTHOUSE,
                "uplink_bps": _LIGHTHOUSE,
                "downlink_bps": _LIGHTHOUSE,
            },
        ),
    )
}
"""The five that have a name. None has outages: a device that stays where it is (assumption)."""

_Number = Annotated[float, Field(strict=True)]


class _OutagesInFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    periods_s: list[tuple[_Number, _Number]] = []
    mean_between_s: _Number | None = None
    mean_length_s: _Number | None = None


class _ProfileInFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    one_way_delay_ms: _Number
    jitter_ms: _Number = 0.0
    loss_share: _Number = 0.0
    stall_ms: _Number | None = None
    uplink_bps: _Number
    downlink_bps: _Number
    outages: _OutagesInFile = _OutagesInFile()
    sources: dict[str, str] = {}


def link_profile(given: str) -> LinkProfile:
    """The profile of this name, or of this TOML or JSON file.

    Raises:
        UsageError: there is no such name or file, or the file holds no possible link.
    """
    if given in NAMED:
        return NAMED[given]
    path = Path(given)
    if not path.is_file():
        raise UsageError(
            f"{given!r} is no link profile and no file",
            hint=f"Name one of {', '.join(NAMED)}, or a TOML or JSON file.",
        )
    try:
        read = _ProfileInFile.model_validate(_content(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UsageError(f"link profile {path}: {where}: {first['msg']}", hint=_HINT) from None
    unknown = set(read.sources) - {each.name for each in fields(LinkProfile)}
    if unknown:
        raise UsageError(
            f"link profile {path}: sources names {min(unknown)!r}, which is no value of a link",
            hint=_HINT,
        )
    return LinkProfile(
        **read.model_dump(exclude={"name", "outages"}),
        name=read.name or path.stem,
        outages=Outages(
            tuple(read.outages.periods_s), read.outages.mean_between_s, read.outages.mean_length_s
        ),
    )


def _content(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise UsageError(f"link profile {path} cannot be read: {error}", hint=_HINT) from None
