"""Pictures on their way into a model: what the client does to them, and what the server does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from statistics import fmean
from typing import Literal

import numpy as np

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.clients import WHAT, Client, server_of
from loadtest.playbook.experiment import Lab
from loadtest.playbook.served import Served
from serving.deriving.pipeline import known_front, make_pipeline
from serving.errors import ModelError, ParityError
from serving.fronthalf import FrontHalf, Payload
from serving.fronthalf.frames import frames_for
from serving.fronthalf.picture import decode
from serving.models.pipeline import PICTURE
from serving.models.repository import Model, place
from serving.models.variants.parameters import tolerance_of
from serving.protocol import Array
from serving.session import open_session

Sent = Literal["jpeg", "uint8", "float32"]


def front_of(model: Model, payload: Payload) -> FrontHalf:
    """Raises ModelError for a model that takes no pictures."""
    front = known_front(model, payload)
    if front is None:
        raise ModelError(f"{model.name} takes no pictures", hint="Choose one that does.")
    return front


def pipeline_of(lab: Lab, payload: Payload) -> Model:
    """The model behind its front half, made once for the whole playbook.

    Raises:
        ModelError: the model takes no pictures.
    """
    root = lab.shared / "pipelines"
    made = Model(root, f"{lab.model.name}_{payload}")
    if not made.folder.is_dir():
        parent = place(lab.model, root, instances=1, intra_op_threads=1)
        make_pipeline(parent, front_of(lab.model, payload), lab.listener.stage)
    return made


def client_step(front: FrontHalf, sent: Sent) -> Callable[[Array], Array]:
    """What a client does to a row as ``front`` takes it, before it sends it as ``sent``."""
    if sent == "float32":
        return front.run
    if sent == front.payload:
        return lambda row: row
    return lambda row: front.letterbox(decode(row[0][0]))[None]


def sending(name: str, what: str, *, given: Payload, sent: Sent) -> Called:
    """An arm: a client that is given photographs as ``given``, and sends them as ``sent``."""
    model = None if sent == "float32" else partial(pipeline_of, payload=sent)
    return Called(
        name,
        f"{what}; {WHAT}",
        sending_calls,
        {"given": given, "sent": sent},
        against=Served(f"server of {name}", what, model=model),
    )


def sending_calls(job: Job) -> Calls:
    """Whole ways of photographs, from what the client has to the model's outputs.

    Raises:
        ParityError: an answer is not what front half and model answer in this process.
    """
    given, sent = job.arguments["given"], job.arguments["sent"]
    front = front_of(job.model, given)
    rows = tuple(frames_for(front).values())
    step = client_step(front, sent)
    asked, tensor = f"{job.model.name}_{sent}", PICTURE
    if sent == "float32":
        asked, tensor = job.model.name, job.model.config.inputs[0].name
    client = Client(server_of(job), asked)

    def ask(row: Array) -> dict[str, Array]:
        return client.infer({tensor: step(row)})

    _require_equal(job.model, front, rows, ask)
    body_bytes = fmean(len(client.encode({tensor: step(row)})[0]) for row in rows)
    facts = {
        "request": f"{body_bytes:,.0f} bytes on average",
        "answers": f"of {len(rows)} photographs, equal to front half and model in one process",
    }
    return Calls(
        lambda number: ask(rows[number % len(rows)]), None, close=client.close, facts=facts
    )


def _require_equal(
    model: Model,
    front: FrontHalf,
    rows: tuple[Array, ...],
    ask: Callable[[Array], Mapping[str, Array]],
) -> None:
    tolerance = tolerance_of(model.config)
    tensor = model.config.inputs[0].name
    session = open_session(model)
    for number, row in enumerate(rows):
        got = ask(row)
        for name, wanted in session.run({tensor: front.run(row)}).items():
            if not np.allclose(got[name], wanted, tolerance.relative, tolerance.absolute):
                raise ParityError(
                    f"photograph {number + 1}: output {name!r} is not that of front half and model "
                    "in one process",
                    hint="This is a fault of the experiment or of the server.",
                )
    session.close()
