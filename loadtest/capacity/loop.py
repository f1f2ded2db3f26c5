"""The simulation itself, compiled: arrivals go in, requests with an outcome come out.

One file holds all compiled code: numba's cache looks at the file of a function alone, and would
keep an old copy of what that function calls, or of the order of ``State``, in another.

Time is in whole nanoseconds, so what happens at one moment needs an order: instances become free
and requests expire, then requests come, then batches leave. So what comes together may leave
together, as in a server that reads all it has before it wakes an instance. A replica's next event
is the number 2 t, or 2 t + 1 when a batch leaves at t.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from loadtest.capacity.service import Times

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Compiled = TypeVar("Compiled", bound=Callable[..., Any])

    def _compiled(function: Compiled) -> Compiled: ...

    def _inlined(function: Compiled) -> Compiled: ...
else:
    _compiled = njit(cache=True)
    # What is compiled by itself is optimised once more within each of its callers.
    _inlined = njit(inline="always")

NEVER = 1 << 62
"""As an event; moments are below half of it."""
NONE = -1
OK, REJECTED, EXPIRED, DROPPED = 0, 1, 2, 3

Records = npt.NDArray[Any]
Small = npt.NDArray[np.int32]


class State(NamedTuple):
    """``loadtest.capacity.state`` tells what the records are.

    Attributes:
        agenda: a binary heap of replicas by the moment of their next event.
    """

    rules: Records
    batches: Records
    samples: Times
    slots: Records
    replicas: Records
    instances: Records
    agenda: Times
    links: Records
    streams: Records
    ended: Records
    counters: Records


@_compiled
def advance(
    state: State,
    rng: np.random.Generator,
    times_ns: Times,
    streams: Small,
    first: int,
    until_ns: int,
) -> None:
    """Let requests come at ascending moments, then let time run to the end of ``until_ns``.

    ``first`` is the index of the first of them. With ``until_ns`` -1 nothing happens after the last
    one came: more may come at its moment.
    """
    for number in range(times_ns.size):
        now = times_ns[number]
        _run_until(state, rng, 2 * now)
        _arrive(state, first + number, streams[number], now)
    _run_until(state, rng, 2 * until_ns + 1)


@_compiled
def _run_until(state: State, rng: np.random.Generator, last: int) -> None:
    while True:
        replica = state.agenda[0]
        event = state.replicas[replica].event
        if event > last:
            return
        now = event >> 1
        if event & 1:
            _dispatch(state, rng, replica, now)
        else:
            _complete(state, replica, now)
            _expire(state, replica, now)
        _plan(state, replica, now)


@_inlined
def _arrive(state: State, index: int, stream: int, now: int) -> None:
    rules, counters = state.rules[0], state.counters[0]
    if stream >= 0 and rules.latest_only and state.streams[stream].waiting >= 0:
        number = state.streams[stream].waiting
        _end(state, number, NONE, now, 0, DROPPED)
        state.slots[number].arrived_ns = now
        state.slots[number].index = index
        return
    number = counters.free_slot
    slot = state.slots[number]
    counters.free_slot = slot.after
    counters.used_slots += 1
    slot.arrived_ns = now
    slot.index = index
    slot.stream = stream
    slot.replica = NONE
    slot.after = NONE
    if stream >= 0 and rules.in_order and state.streams[stream].busy:
        _hold(state, number, state.streams[stream])
    else:
        _send(state, number, now)


@_inlined
def _hold(state: State, number: int, stream: Any) -> None:
    """The frame waits for the answer to the one before it."""
    if stream.held_head < 0:
        stream.held_head = number
    else:
        state.slots[stream.held_tail].after = number
    stream.held_tail = number
    stream.waiting = number


@_compiled
def _release(state: State, stream_number: int, now: int) -> None:
    """The stream has its answer and may send the next frame."""
    rules, stream = state.rules[0], state.streams[stream_number]
    stream.busy = 0
    while stream.held_head >= 0:
        number = stream.held_head
        slot = state.slots[number]
        stream.held_head = slot.after
        stream.waiting = NONE
        slot.after = NONE
        if rules.drop_late and now - slot.arrived_ns >= rules.deadline_ns:
            _end(state, number, NONE, now, 0, DROPPED)
            _free(state, number)
        elif _send(state, number, now):
            return


@_compiled
def _send(state: State, number: int, now: int) -> bool:
    """Into the queue of a replica; false when that is full."""
    slot = state.slots[number]
    replica_number = _choose(state)
    replica = state.replicas[replica_number]
    slot.replica = replica_number
    if replica.waiting + replica.late >= state.rules[0].limit:
        _end(state, number, NONE, now, 0, REJECTED)
        _free(state, number)
        return False
    slot.since_ns = now
    if replica.waiting:
        state.slots[replica.tail].after = number
    else:
        replica.head = number
    replica.tail = number
    replica.waiting += 1
    _count(state, replica_number, 1)
    if slot.stream >= 0:
        state.streams[slot.stream].busy = 1
        if state.rules[0].in_queue:
            state.streams[slot.stream].waiting = number
    if replica.idle or replica.waiting == 1:
        _plan(state, replica_number, now)
    return True


@_inlined
def _dispatch(state: State, rng: np.random.Generator, replica_number: int, now: int) -> None:
    """Give every idle instance a batch, as far as some are due."""
    rules, replica = state.rules[0], state.replicas[replica_number]
    while replica.idle:
        if rules.drop_late and rules.in_queue:
            _drop_late(state, replica, now)
        waiting = min(replica.waiting, rules.largest)
        count = state.batches[waiting].leaving
        if waiting and not count:
            waited_ns = now - state.slots[replica.head].since_ns
            count = waiting if waited_ns >= rules.delay_ns else 0
        if not waiting and replica.late:
            _take_late(state, replica)
            count = 1
        if not count:
            return
        _start(state, rng, replica_number, count, now)


@_inlined
def _start(
    state: State, rng: np.random.Generator, replica_number: int, count: int, now: int
) -> None:
    in_order, replica = state.rules[0].in_order, state.replicas[replica_number]
    free = 0
    while state.instances[replica_number, free].free_at_ns != NEVER:
        free += 1
    instance = state.instances[replica_number, free]
    rested = count == 1 and state.batches[0].count > 0
    rested = rested and state.slots[replica.head].since_ns == now
    times = state.batches[0 if rested else count]
    done_ns = now + state.samples[times.first + int(rng.random() * times.count)]
    instance.free_at_ns = done_ns
    instance.batch = count
    instance.members = replica.head
    replica.idle -= 1
    for _ in range(count):
        number = _pop(state, replica)
        _end(state, number, now, done_ns, count, OK)
        if not in_order:
            _free(state, number)


@_inlined
def _complete(state: State, replica_number: int, now: int) -> None:
    replica = state.replicas[replica_number]
    for number in range(state.instances.shape[1]):
        instance = state.instances[replica_number, number]
        if instance.free_at_ns > now:
            continue
        instance.free_at_ns = NEVER
        replica.idle += 1
        _count(state, replica_number, -instance.batch)
        if state.rules[0].in_order:
            _answer(state, instance, now)


@_inlined
def _answer(state: State, instance: Any, now: int) -> None:
    """The streams of the batch may go on."""
    number = instance.members
    for _ in range(instance.batch):
        following, stream = state.slots[number].after, state.slots[number].stream
        _free(state, number)
        if stream >= 0:
            _release(state, stream, now)
        number = following


@_inlined
def _expire(state: State, replica_number: int, now: int) -> None:
    """All have the same timeout, so those past it are the oldest."""
    rules, replica = state.rules[0], state.replicas[replica_number]
    while rules.timeout_ns and replica.waiting:
        number = replica.head
        if state.slots[number].since_ns + rules.timeout_ns > now:
            return
        _pop(state, replica)
        if rules.reject:
            _leave_unserved(state, number, now, EXPIRED)
            continue
        state.slots[number].after = NONE
        if replica.late:
            state.slots[replica.late_tail].after = number
        else:
            replica.late_head = number
        replica.late_tail = number
        replica.late += 1


@_inlined
def _take_late(state: State, replica: Any) -> None:
    """The queue is empty: the first of those that lost their place is next, alone."""
    number = replica.late_head
    replica.late_head = state.slots[number].after
    replica.late -= 1
    state.slots[number].after = NONE
    replica.head = number
    replica.tail = number
    replica.waiting = 1


@_inlined
def _drop_late(state: State, replica: Any, now: int) -> None:
    """Take out the late ones before and among those that would leave next."""
    rules = state.rules[0]
    previous, number, in_time = NONE, replica.head, 0
    for _ in range(replica.waiting):
        if in_time == rules.largest:
            return
        following = state.slots[number].after
        if now - state.slots[number].arrived_ns < rules.deadline_ns:
            previous, in_time = number, in_time + 1
        else:
            if previous < 0:
                replica.head = following
            else:
                state.slots[previous].after = following
            if number == replica.tail:
                replica.tail = previous
            replica.waiting -= 1
            _leave_unserved(state, number, now, DROPPED)
        number = following


@_inlined
def _leave_unserved(state: State, number: int, now: int, outcome: int) -> None:
    stream = state.slots[number].stream
    _count(state, state.slots[number].replica, -1)
    _end(state, number, NONE, now, 0, outcome)
    _free(state, number)
    if stream >= 0:
        if state.rules[0].in_queue:
            state.streams[stream].waiting = NONE
        _release(state, stream, now)


@_inlined
def _pop(state: State, replica: Any) -> Any:
    """The oldest that waits; it still names the next."""
    number = replica.head
    slot = state.slots[number]
    replica.head = slot.after
    replica.waiting -= 1
    if slot.stream >= 0 and state.rules[0].in_queue:
        state.streams[slot.stream].waiting = NONE
    return number


@_inlined
def _free(state: State, number: int) -> None:
    counters = state.counters[0]
    state.slots[number].after = counters.free_slot
    counters.free_slot = number
    counters.used_slots -= 1


@_inlined
def _end(
    state: State, number: int, started_ns: int, done_ns: int, batch: int, outcome: int
) -> None:
    counters, slot = state.counters[0], state.slots[number]
    ended = state.ended[counters.ended]
    counters.ended += 1
    ended.index = slot.index
    ended.arrived_ns = slot.arrived_ns
    ended.started_ns = started_ns
    ended.done_ns = done_ns
    ended.replica = slot.replica
    ended.stream = slot.stream
    ended.batch = batch
    ended.outcome = outcome


@_inlined
def _choose(state: State) -> Any:
    counters, replicas = state.counters[0], state.replicas.size
    if state.rules[0].least:
        return state.links[replicas + counters.least_level].after
    replica = counters.turn
    counters.turn = (replica + 1) % replicas
    return replica


@_compiled
def _count(state: State, number: int, change: int) -> None:
    """Move the replica to the end of the ring of those with as many outstanding as it has now."""
    replica, counters, links = state.replicas[number], state.counters[0], state.links
    replica.outstanding += change
    if not state.rules[0].least:
        return
    link = links[number]
    links[link.before].after = link.after
    links[link.after].before = link.before
    ring = state.replicas.size + replica.outstanding
    link.before = links[ring].before
    link.after = ring
    links[link.before].after = number
    links[ring].before = number
    counters.least_level = min(counters.least_level, replica.outstanding)
    while links[state.replicas.size + counters.least_level].after >= state.replicas.size:
        counters.least_level += 1


@_compiled
def _plan(state: State, number: int, now: int) -> None:
    """Write down when something happens next at the replica, if nothing more comes."""
    rules, replica = state.rules[0], state.replicas[number]
    event = NEVER
    for instance in range(state.instances.shape[1]):
        free_at_ns = state.instances[number, instance].free_at_ns
        if free_at_ns != NEVER:
            event = min(event, 2 * free_at_ns)
    if replica.waiting:
        since_ns = state.slots[replica.head].since_ns
        if rules.timeout_ns:
            event = min(event, 2 * (since_ns + rules.timeout_ns))
        if replica.idle:
            leaves = state.batches[min(replica.waiting, rules.largest)].leaving > 0
            event = min(event, 2 * (now if leaves else max(now, since_ns + rules.delay_ns)) + 1)
    elif replica.late and replica.idle:
        event = min(event, 2 * now + 1)
    _move(state, number, event)


@_compiled
def _move(state: State, number: int, event: int) -> None:
    """Up or down the heap, to where the event belongs."""
    agenda, replicas = state.agenda, state.replicas
    replicas[number].event = event
    at = replicas[number].place
    while at > 0 and replicas[agenda[(at - 1) // 2]].event > event:
        agenda[at] = agenda[(at - 1) // 2]
        replicas[agenda[at]].place = at
        at = (at - 1) // 2
    while 2 * at + 1 < agenda.size:
        child = 2 * at + 1
        if child + 1 < agenda.size and (
            replicas[agenda[child + 1]].event < replicas[agenda[child]].event
        ):
            child += 1
        if replicas[agenda[child]].event >= event:
            break
        agenda[at] = agenda[child]
        replicas[agenda[at]].place = at
        at = child
    agenda[at] = number
    replicas[number].place = at
