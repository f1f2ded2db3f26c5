"""From a command's options to the backends that are searched, each with its space and study."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import URL

from loadtest.folder import ResultsFolder
from loadtest.likeness import conditions
from loadtest.results import Manifest
from loadtest.tune.run import Contender
from loadtest.tune.space import Space, space_of
from loadtest.tune.study import Place, open_study
from loadtest.tune.variants import variants_within
from serving.errors import UsageError
from serving.knobs import Room
from serving.models.repository import Model

_OF_PLACE = ("host", "server_cpus", "client_cpus")
"""Conditions that name a place: another machine of the same kind has other ones."""


@dataclass(frozen=True)
class Plan:
    """What is searched.

    Attributes:
        models: by name, the model itself first, then its variants.
        spaces: by backend.
    """

    models: Mapping[str, Model]
    spaces: Mapping[str, Space]


def plan_of(
    model: Model,
    labels: Sequence[str],
    *,
    cpus: int,
    oversubscribe: float = 1.0,
    accuracy_budget: float | None = None,
    only: Sequence[str] = (),
) -> Plan:
    """Starts nothing.

    Raises:
        UsageError: a backend has nothing to turn, or none has a knob that ``only`` names.
        ModelError: a model or variant cannot be read.
    """
    variants = () if accuracy_budget is None else variants_within(model, accuracy_budget)
    models = {one.name: one for one in (model, *variants)}
    rooms = {name: Room(cpus, one.config, oversubscribe) for name, one in models.items()}
    known = [axis.knob for label in labels for axis in space_of(label, rooms).axes]
    for name in only:
        if name not in known:
            raise UsageError(
                f"there is no knob {name!r} with more than one value here",
                hint=f"Knobs: {', '.join(dict.fromkeys(known))}.",
            )
    return Plan(models, {label: space_of(label, rooms, only) for label in labels})


def contenders_of(
    plan: Plan, folder: ResultsFolder, *, storage: str | None = None, allow_unlike: bool = False
) -> tuple[Contender, ...]:
    """Open or resume the study of every backend; ``storage`` is the folder's own if not given.

    Raises:
        UsageError: the storage cannot be opened.
        ResultsError: a study there is of another space, or was measured under other conditions.
    """
    manifest = folder.read_manifest()
    # SQLite, since a kill in the middle of a line would break a journal file.
    own = URL.create("sqlite", database=str(folder.path / "study.db")).render_as_string()
    settings = manifest.settings
    asked = " and ".join(settings.objectives)
    return tuple(
        Contender(
            label,
            space,
            open_study(
                Place(
                    storage or own,
                    f"infersweep: {settings.model} on {label}, {asked}",
                    f"{socket.gethostname()}:{folder.path}",
                ),
                space,
                facts_of(manifest),
                seed=settings.seed,
                allow_unlike=allow_unlike,
            ),
            plan.models,
        )
        for label, space in plan.spaces.items()
    )


def facts_of(manifest: Manifest) -> Mapping[str, str]:
    """What must be alike wherever settings of one study are measured."""
    settings = manifest.settings
    found = {name: value for name, value in conditions(manifest).items() if name not in _OF_PLACE}
    return {
        **found,
        "server CPUs": str(len(settings.server_cpus)),
        "client CPUs": str(len(settings.client_cpus)),
        "model checksum": manifest.model_sha256[:12],
    }
