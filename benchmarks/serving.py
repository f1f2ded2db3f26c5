"""The servers against each other and against the limit, in one run: ``make bench-serving``.

Server on one CPU, wrk on another; contenders take turns, ratios are taken per turn, and medians
count. ``--quick`` takes one short turn of each, ``--long`` soaks the server for ten minutes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks import rows
from benchmarks.cases import (
    FEW,
    MANY,
    OURS,
    Case,
    alone,
    bare_loop,
    checked,
    joined,
)
from benchmarks.endurance import memory, overload, soak
from benchmarks.handover import handover
from benchmarks.load import CLIENT_CPU, SERVER_CPU, say
from benchmarks.peers import Unavailable, perf_analyzer
from benchmarks.rows import STATED, Row, at_least, at_most, stated, unmeasured
from benchmarks.servers import bentoml, kserve, litserve, mlserver, mosec, ray_serve
from benchmarks.servers.base import running_peer
from benchmarks.turns import Plan, ratios
from serving.deployment import fetch_needed
from serving.errors import InfersweepError
from serving.models.repository import Model, find_model
from serving.models.zoo.build import ensure_built
from serving.protocol import HEADER_LENGTH, Tensor, encode_request
from serving.providers import runtime_version
from tests.sample_models import write_tiny

OF_LIMIT, ALONE_P50, BATCHING, CHECKED = 0.95, 0.8, 2.0, 0.9
RIVALS = (
    ("triton", "triton", 0, 1.5),
    ("triton with 200 us to batch", "triton", 200, 1.5),
    ("fastapi", "fastapi", 0, 2.5),
)
"""Name, backend, microseconds to wait for a batch, bound. Machines differ in what suits Triton."""

PEERS = (
    (mosec.UNBATCHED, "alone", 1.0),
    (mosec.BATCHED, "joined", 0.5),
    (litserve.PEER, "joined", 1.0),
    (bentoml.PEER, "joined", 1.0),
    (ray_serve.PEER, "joined", 1.0),
    (mlserver.PEER, "joined", 1.0),
    (kserve.PEER, "joined", 1.0),
)
"""Each against ours with its requests alone or joined, and the bound."""


@dataclass(frozen=True)
class Models:
    """What is served: a network that fills a core, one that costs next to nothing, two others.

    Attributes:
        policy: a chain of small products, whose rows cost a small part in one batch.
        text: whose rows cost somewhat less in one batch.
    """

    image: Model
    tiny: Model
    policy: Model
    text: Model


def near_the_limit(plan: Plan, models: Models) -> Iterator[Row]:
    """How much of one core's limit is left beside HTTP, checks and queue."""
    case = plan.case("limit", models.image)
    with case.served(OURS) as server, bare_loop(case) as (bare, _):
        targets = {OURS: case.target(server.url), "bare loop": case.target(bare)}
        found = plan.in_turns(case.model.name, targets, FEW)
    name = f"{case.model.name}, {FEW} users: requests/s / the bare loop's"
    yield at_least(name, ratios(found[OURS], found["bare loop"]), OF_LIMIT)


def against_rivals(plan: Plan, models: Models) -> Iterator[Row]:
    """The project's other backends with many users, one after another beside ours."""
    case = plan.case("ours", models.tiny, joined(MANY))
    title = f"{case.model.name}, {MANY} users:"
    with case.served(OURS) as server:
        for name, label, delay_us, bound in RIVALS:
            # Triton's Python backend splits its folder's path at spaces, and the name has some.
            folder = f"{label}-{delay_us}"
            rival = plan.case(folder, models.tiny, joined(MANY, delay_us=delay_us))
            try:
                with rival.served(label) as other:
                    targets = {OURS: case.target(server.url), name: rival.target(other.url)}
                    found = plan.in_turns(case.model.name, targets, MANY)
            except (Unavailable, InfersweepError) as error:
                yield unmeasured(f"{title} requests/s / {name}'s", f">= {bound:g}", reason(error))
                continue
            ours, theirs = found[OURS], found[name]
            yield at_least(f"{title} requests/s / {name}'s", ratios(ours, theirs), bound)
            yield at_most(f"{title} p99 / {name}'s", ratios(ours, theirs, "p99_ms"), 1.0)


def single_user(plan: Plan, models: Models) -> Iterator[Row]:
    """Nobody to wait for: ours and Triton, both without a batching delay."""
    case = plan.case("single", models.tiny, joined(MANY))
    with case.served(OURS) as server, case.served("triton") as other:
        targets = {OURS: case.target(server.url), "triton": case.target(other.url)}
        found = plan.in_turns(case.model.name, targets, 1)
    name = f"{case.model.name}, 1 user: p50 / triton's"
    yield at_most(name, ratios(found[OURS], found["triton"], "p50_ms"), ALONE_P50)


def batching(plan: Plan, models: Models) -> Iterator[Row]:
    """The same server with and without joining requests."""
    for model in (models.policy, models.text):
        together = plan.case(f"{model.name}-joined", model, joined(MANY))
        apart = plan.case(f"{model.name}-alone", model, alone)
        with together.served(OURS) as one, apart.served(OURS) as other:
            targets = {"joined": together.target(one.url), "alone": apart.target(other.url)}
            found = plan.in_turns(model.name, targets, MANY)
        name = f"{model.name}, {MANY} users: requests/s joined / alone"
        values = ratios(found["joined"], found["alone"])
        yield at_least(name, values, BATCHING) if model is models.policy else stated(name, values)


def checks(plan: Plan, models: Models) -> Iterator[Row]:
    """What it costs to refuse NaN and infinity; a server that takes them is not measured."""
    for label in (OURS, "fastapi"):
        for model, users in ((models.image, FEW), (models.tiny, MANY)):
            name = f"{model.name}, {users} users: requests/s with input checks / without, {label}"
            bounded = label == OURS and model is models.image
            plain = plan.case(f"{label}-{model.name}-plain", model)
            guarded = plan.case(f"{label}-{model.name}-checked", model, checked("finite"))
            with plain.served(label) as one, guarded.served(label) as other:
                if not refuses_nan(guarded, other.url):
                    target = f">= {CHECKED:g}" if bounded else STATED
                    yield unmeasured(name, target, "it answers an input of NaN")
                    continue
                targets = {"without": plain.target(one.url), "with": guarded.target(other.url)}
                found = plan.in_turns(f"{model.name}, {label}", targets, users)
            values = ratios(found["with"], found["without"])
            yield at_least(name, values, CHECKED) if bounded else stated(name, values)


def refuses_nan(case: Case, url: str) -> bool:
    """Whether a request of NaN alone comes back as the client's fault."""
    sample = case.reference.samples[0].inputs
    tensors = [Tensor.of(name, np.full_like(row, np.nan)) for name, row in sample.items()]
    body, length = encode_request(tensors)
    headers = {**case.payload.headers, HEADER_LENGTH: str(length)}
    request = urllib.request.Request(case.target(url).infer_url, body, headers)
    try:
        with urllib.request.urlopen(request):
            return False
    except urllib.error.HTTPError as error:
        return error.code == 400


def grpc(plan: Plan, models: Models) -> Iterator[Row]:
    """One server's two doors, under a client that does not hold either back."""
    name = f"{models.tiny.name}, {MANY} users: requests/s over gRPC / over HTTP"
    case = plan.case("grpc", models.tiny, joined(MANY))
    values = []
    try:
        with case.served(OURS) as server:
            target = case.target(server.url)
            address = server.address_for("grpc").removeprefix("grpc://")
            for turn in range(plan.turns):
                say(f"gRPC, turn {turn + 1}")
                over_http = perf_analyzer(target, MANY, plan.seconds, CLIENT_CPU)
                over_grpc = perf_analyzer(target, MANY, plan.seconds, CLIENT_CPU, address)
                values += ratios([over_grpc], [over_http])
    except (Unavailable, InfersweepError) as error:
        yield unmeasured(name, STATED, reason(error))
        return
    yield stated(name, values)


def against_peers(plan: Plan, models: Models) -> Iterator[Row]:
    """Public servers, each in an environment of its own, one after another beside ours."""
    cases = {
        "joined": plan.case("peers-joined", models.tiny, joined(MANY)),
        "alone": plan.case("peers-alone", models.tiny, joined(MANY), alone),
    }
    with ExitStack() as stack:
        ours = {
            how: case.target(stack.enter_context(case.served(OURS)).url)
            for how, case in cases.items()
        }
        for peer, how, bound in PEERS:
            name = f"{models.tiny.name}, {MANY} users: requests/s {how} / {peer.name}'s"
            try:
                with running_peer(peer, cases[how], say) as (theirs, version):
                    targets = {f"{OURS}, {how}": ours[how], peer.name: theirs}
                    one, other = plan.in_turns(models.tiny.name, targets, MANY).values()
            except Unavailable as error:
                yield unmeasured(name, f">= {bound:g}", reason(error))
                continue
            row = at_least(name, ratios(one, other), bound)
            told = f"{peer.wire.name}, version {version}"
            yield replace(row, note="; ".join(part for part in (told, row.note) if part))


PARTS: dict[str, Callable[[Plan, Models], Iterable[Row]]] = {
    "limit": near_the_limit,
    "rivals": against_rivals,
    "single": single_user,
    "batching": batching,
    "checks": checks,
    "grpc": grpc,
    "memory": lambda plan, models: [memory(plan, models.image), soak(plan, models.tiny)],
    "overload": lambda plan, models: [overload(plan, models.image)],
    "handover": lambda plan, models: [
        row for model in (models.tiny, models.image) for row in handover(plan, model)
    ],
    "peers": against_peers,
}


def measured(parts: Sequence[str], plan: Plan, models: Models) -> Iterator[Row]:
    """The rows of each part; of one that breaks off, those it had and the reason."""
    for part in parts:
        try:
            yield from PARTS[part](plan, models)
        except (Unavailable, InfersweepError) as error:
            yield unmeasured(part, "all its rows", reason(error))


def reason(error: Unavailable | InfersweepError) -> str:
    """One line for the table; the whole, which may have a log's end, goes to standard error."""
    say(str(error))
    return error.what if isinstance(error, InfersweepError) else str(error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--only", choices=PARTS)
    asked = parser.parse_args()
    os.sched_setaffinity(0, {SERVER_CPU, CLIENT_CPU})
    image, policy, text = map(find_model, ("image_classifier", "flight_policy", "text_encoder"))
    for model in (image, policy, text):
        ensure_built(model, say)
    try:
        fetch_needed(["triton"], say)
    except InfersweepError as error:
        say(f"Triton cannot be had: {error}")
    with tempfile.TemporaryDirectory(prefix="infersweep-bench-") as name:
        folder = Path(name)
        models = Models(image, write_tiny(folder / "tiny"), policy, text)
        turns, seconds = (1, 2.0) if asked.quick else (3, 4.0)
        soak_s = 600.0 if asked.long else 20.0 if asked.quick else 60.0
        plan = Plan(folder, turns, seconds, soak_s)
        chosen = [asked.only] if asked.only else list(PARTS)
        versions = {"ONNX Runtime": runtime_version(), "infersweep": version("infersweep")}
        rows.write("serving", list(measured(chosen, plan, models)), versions)


if __name__ == "__main__":
    main()
