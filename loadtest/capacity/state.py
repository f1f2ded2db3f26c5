"""Everything that a simulation carries from one chunk of arrivals to the next, as arrays.

A request that waits has a slot; slots are used again, so memory follows what waits and not what
came. Arrays of records, and few of them: compiled code counts references to each that it is given.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loadtest.capacity.loop import NEVER, NONE, Records, State
from loadtest.capacity.scheduler import Fleet, Frames


def _record(names: str, **others: np.dtype[Any] | type) -> np.dtype[Any]:
    """Of 64 bits each but for ``others``: mixed widths would be compiled for each mixture."""
    kinds = dict.fromkeys(names.split(), np.int64) | others
    return np.dtype(list(kinds.items()), align=True)


SLOT = _record("arrived_ns since_ns index stream replica after")
"""A request that waits; ``after`` is the next slot of its list: a queue, a batch, the free ones."""
REPLICA = _record("event outstanding head tail waiting late_head late_tail late idle place")
"""Its queue, those that lost their place, its next event, and where it lies in the agenda."""
INSTANCE = _record("free_at_ns batch members")
"""``members`` is the first slot of the batch that it serves."""
LINK = _record("before after")
"""Rings of the replicas with equally many outstanding requests; entry ``replicas + n`` is the end
and the beginning of the n-th.
"""
STREAM = _record("held_head held_tail waiting busy")
"""``waiting`` is the slot of its newest frame that waits."""
ENDED = _record(
    "index arrived_ns started_ns done_ns",
    replica=np.int32,
    stream=np.int32,
    batch=np.int32,
    outcome=np.int8,
)
"""A request whose outcome is known."""
COUNTERS = _record("ended free_slot used_slots turn least_level")
RULES = _record(
    "largest delay_ns timeout_ns limit deadline_ns reject least "
    "drop_late latest_only in_order in_queue"
)
BATCH = _record("leaving first count")
"""By requests that wait: how many leave at once. By batch size: where its samples lie; at 0 those
of one request that an idle instance takes.
"""


def new_state(fleet: Fleet) -> State:
    """Nothing has come yet."""
    replicas = np.zeros(fleet.replicas, REPLICA)
    replicas["event"] = NEVER
    replicas["idle"] = fleet.scheduler.instances
    replicas["place"] = np.arange(fleet.replicas)
    instances = np.zeros((fleet.replicas, fleet.scheduler.instances), INSTANCE)
    instances["free_at_ns"] = NEVER
    links = np.zeros(fleet.replicas + 1, LINK)
    ring = np.arange(fleet.replicas + 1)
    links["before"], links["after"] = np.roll(ring, 1), np.roll(ring, -1)
    counters = np.zeros(1, COUNTERS)
    counters["free_slot"] = NONE
    return State(
        rules=_rules(fleet),
        **_tables(fleet),
        slots=np.zeros(0, SLOT),
        replicas=replicas,
        instances=instances,
        agenda=np.arange(fleet.replicas),
        links=links,
        streams=np.zeros(0, STREAM),
        ended=np.zeros(0, ENDED),
        counters=counters,
    )


def with_room(state: State, arrivals: int, streams: int) -> State:
    """The same state, with room for so many more arrivals, of streams below ``streams``."""
    used = int(state.counters["used_slots"][0])
    levels = int(state.replicas["outstanding"].max()) + arrivals + 2
    return state._replace(
        slots=_more_slots(state, used + arrivals),
        links=_more_levels(state.links, len(state.replicas) + levels),
        streams=_more_streams(state.streams, streams),
        ended=np.zeros(used + arrivals, ENDED),
    )


def _rules(fleet: Fleet) -> Records:
    scheduler, frames = fleet.scheduler, fleet.frames or Frames(in_order=False)
    rules = np.zeros(1, RULES)
    rules["largest"] = scheduler.max_batch_size
    rules["delay_ns"] = scheduler.max_queue_delay_ns
    rules["timeout_ns"] = scheduler.timeout_ns
    rules["limit"] = scheduler.max_queue_size or NEVER
    rules["deadline_ns"] = frames.deadline_ns
    rules["reject"] = scheduler.reject
    rules["least"] = fleet.balance == "least-outstanding"
    rules["drop_late"] = frames.policy == "drop-late"
    rules["latest_only"] = frames.policy == "latest-only"
    rules["in_order"] = frames.in_order
    rules["in_queue"] = frames.in_queue
    return rules


def _tables(fleet: Fleet) -> dict[str, Records]:
    """Service times of all measured sizes in a row, and for each batch size those it takes."""
    measured = fleet.service.per_batch
    ends = np.cumsum([len(times) for times in measured.values()])
    first = {size: end - len(measured[size]) for size, end in zip(measured, ends, strict=True)}
    batches = np.zeros(fleet.scheduler.max_batch_size + 1, BATCH)
    for batch in range(1, len(batches)):
        size = fleet.service.size_for(batch)
        batches[batch] = fleet.scheduler.leaving(batch), first[size], len(measured[size])
    rested = fleet.service.rested
    samples = [*measured.values(), *([] if rested is None else [rested])]
    if rested is not None:
        batches[0] = 0, ends[-1], len(rested)
    return {"batches": batches, "samples": np.concatenate(samples)}


def _more_slots(state: State, wanted: int) -> Records:
    old = len(state.slots)
    if wanted <= old:
        return state.slots
    slots = _longer(state.slots, max(wanted, 2 * old))
    slots["after"][old:-1] = np.arange(old + 1, len(slots))
    slots["after"][-1] = state.counters["free_slot"][0]
    state.counters["free_slot"] = old
    return slots


def _more_levels(links: Records, wanted: int) -> Records:
    old = len(links)
    if wanted <= old:
        return links
    longer = _longer(links, max(wanted, 2 * old))
    longer["before"][old:] = longer["after"][old:] = np.arange(old, len(longer))
    return longer


def _more_streams(streams: Records, wanted: int) -> Records:
    old = len(streams)
    if wanted <= old:
        return streams
    longer = _longer(streams, wanted)
    longer["held_head"][old:] = longer["waiting"][old:] = NONE
    return longer


def _longer(records: Records, size: int) -> Records:
    longer = np.zeros(size, records.dtype)
    longer[: len(records)] = records
    return longer
