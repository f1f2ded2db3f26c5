"""Onboard against offload as it may be found, for tests of the decision and of its page."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from loadtest.camera_schedule import Cameras
from loadtest.links.profile import NAMED
from loadtest.links.told import record_of
from loadtest.offload.decision import decide
from loadtest.offload.outage import Outage, simulated
from loadtest.offload.record import OffloadRecord, RepeatRecord, Side, SideRecord
from tests import sample_report

MS = 1_000_000


def asked(**changed: object) -> Outage:
    return replace(
        Outage(
            cameras=Cameras(1, 10.0),
            policy="latest-only",
            deadline_ns=150 * MS,
            link=replace(NAMED["lte"], uplink_bps=8e6),
            link_per_camera=False,
            request_bytes=10_000,
            reply_bytes=1_500,
            length_s=5.0,
            seed=1,
        ),
        **changed,
    )


def repeat(number: int, **changed: object) -> RepeatRecord:
    return RepeatRecord.model_validate(
        {
            "trial": f"x-l1-r{number}",
            "frames": 500,
            "missed_share": 0.0,
            "dropped_share": 0.0,
            "age_p50_ms": 40.0,
            "age_p99_ms": 60.0 + number / 10,
            "delivered_fps": 10.0,
            "longest_gap_ms": 130.0,
            "joules_per_inference": None,
            "joules_missing": "no rail",
            "verdict": "VALID",
            "counts": True,
            **changed,
        }
    )


def side(name: Side, *repeats: RepeatRecord, **changed: object) -> SideRecord:
    counted = [one for one in repeats if one.counts] or [repeat(0)]
    return SideRecord.model_validate(
        {
            "side": name,
            "arm": name,
            "backend": "onnxruntime",
            "link": "none",
            "here": True,
            "repeats": repeats,
            "missed_share": counted[0].missed_share,
            "age_p50_ms": counted[0].age_p50_ms,
            "age_p99_ms": counted[0].age_p99_ms,
            "joules_missing": counted[0].joules_missing,
            **changed,
        }
    )


def three(**changed: object) -> tuple[RepeatRecord, ...]:
    return tuple(repeat(number, **changed) for number in (1, 2, 3))


def record(**changed: object) -> OffloadRecord:
    onboard = side("onboard", *three())
    offload = side("offload", *three(missed_share=0.2), link="lte")
    link = record_of(replace(NAMED["lte"], name="<b>roof</b>"), each_connection=False)
    manifest = sample_report.summary().manifest.model_copy(update={"link": link})
    return OffloadRecord.model_validate(
        {
            "manifest": manifest,
            "cameras": 1,
            "fps": 10.0,
            "policy": "latest-only",
            "deadline_ms": 150.0,
            "sides": (onboard, offload),
            "decision": decide(onboard, offload),
            "outage": simulated(asked(), np.array([60 * MS]), np.array([90 * MS])),
            "notes": ("Both were served here.",),
            "complete": True,
            **changed,
        }
    )
