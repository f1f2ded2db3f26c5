"""What answers in this process: a session, a front half, or the one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Protocol

from serving.errors import ModelError
from serving.fronthalf import PictureError
from serving.models.repository import Model
from serving.protocol import Array, ProtocolError
from serving.session import open_session

PILLOW_VERSION = version("pillow")


class Runner(Protocol):
    """May be called from several threads."""

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Output name to array; raises ProtocolError for inputs that cannot be computed."""
        ...


class FrontRunner:
    """Runs a front half as a session runs a graph."""

    def __init__(self, model: Model) -> None:
        """Raises ModelError when ``model`` is no front half."""
        if model.config.front is None:
            raise ModelError(
                f"model {model.name!r} is no front half", hint="Name the first step of a pipeline."
            )
        self._front = model.config.front
        self._input, self._output = model.config.inputs[0].name, model.config.outputs[0].name

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The model's input, float32 [n,C,H,W].

        Raises:
            ProtocolError: a picture cannot be read.
        """
        try:
            return {self._output: self._front.run(inputs[self._input])}
        except PictureError as error:
            raise ProtocolError(f"input {self._input!r}: {error}") from None

    def close(self) -> None:
        """Nothing is held."""

    def __str__(self) -> str:
        return f"Pillow {PILLOW_VERSION}"


class InTurn:
    """A pipeline: each answer of the first is what the second is asked."""

    def __init__(self, first: Runner, second: Runner) -> None:
        self._first, self._second = first, second

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return self._second.run(self._first.run(inputs))


def front_facts(model: Model, pillow: str = PILLOW_VERSION) -> dict[str, str]:
    """What a launch records of the front half, if ``model`` has one."""
    front = model.front or model
    return {"front half": f"Pillow {pillow}"} if front.config.front else {}


def open_runner(model: Model) -> Runner:
    """What answers for ``model``; raises as ``open_session``."""
    if model.config.front is not None:
        return FrontRunner(model)
    session = open_session(model.computed)
    return session if model.front is None else InTurn(FrontRunner(model.front), session)
