"""A new version of the model, taken over in the middle of each window."""

from __future__ import annotations

import time

from tritonclient.utils import InferenceServerException

from loadtest.live import in_window
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import own_graph
from loadtest.playbook.served import Served, ServedBench
from serving.errors import LoadError, ServerError
from serving.readiness import client_for

_BEGINS_WITHIN_S = 60.0
_POLL_S = 0.02


def _switch(bench: ServedBench) -> None:
    """The same file as the next version, or back to the one before, a quarter into the window.

    Raises:
        LoadError: no window began.
        ServerError: the server did not take the version.
    """
    assert bench.ready is not None
    model = bench.ready.server.model
    own = bench.rig.model.version
    other = model.folder / str(own + 1)
    _wait_for_window(bench)
    time.sleep(bench.rig.settings.duration_s / 4)
    if other.exists():
        other.unlink()
    else:
        other.symlink_to((model.folder / str(own)).resolve(), target_is_directory=True)
    try:
        with client_for(bench.url) as client:
            client.load_model(model.name)
            served = client.get_model_metadata(model.name)["versions"]
    except InferenceServerException as error:
        raise ServerError(
            f"version {model.version} was not loaded: {error}", hint="See the server's log."
        ) from None
    if served != [str(model.version)]:
        raise ServerError(
            f"version {model.version} was loaded, and {', '.join(served)} is served",
            hint="Leave version_policy out of the model's configuration.",
        )


def _wait_for_window(bench: ServedBench) -> None:
    end_s = time.monotonic() + _BEGINS_WITHIN_S
    live = bench.rig.folder.live
    while not any(map(in_window, live.glob("*.board"))):
        if time.monotonic() > end_s:
            raise LoadError("no window began", hint="See the generator's log.")
        time.sleep(_POLL_S)


def _arms(_lab: Lab) -> tuple[Served, ...]:
    return (
        Served(
            "switched",
            "our server, another version takes over in each window",
            while_loaded=_switch,
        ),
        Served("quiet", "our server, nothing else happens"),
    )


EXPERIMENT = Experiment(
    name="version-switch",
    title="A new version under load",
    claim="Load a new version when nobody asks: under load it makes somebody wait.",
    usual=(1.5, None),
    page="onnxruntime-server.md",
    arms=_arms,
    measure="slowest",
    missing=own_graph,
)
