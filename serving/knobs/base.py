"""What a knob is: something that a server's operator can turn, and the room it is turned in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tritonclient.grpc import model_config_pb2 as schema

from serving.models.config import ModelConfig

Setting = Mapping[str, str]
"""Knob name to value as text; a knob that is not in it stays at its default."""


@dataclass(frozen=True)
class Room:
    """What there is to share.

    Attributes:
        cpus: how many CPUs the server may use.
        config: the model's configuration as its author wrote it.
        oversubscribe: inference threads that are allowed per CPU.
    """

    cpus: int
    config: ModelConfig
    oversubscribe: float = 1.0

    @property
    def threads(self) -> float:
        """How many inference threads are allowed."""
        return self.cpus * self.oversubscribe


@dataclass(frozen=True)
class Knob:
    """One thing that can be turned.

    Attributes:
        backends: names of the backends on which it has an effect.
        lands: where its value goes: ``config.pbtxt``, the ``command``, or the ``environment``.
        default: its value without a setting.
        values: values worth trying, in order; the default need not be among them.
        read: a value as text in its one form; raises ValueError that says what may be written.
        write: puts a value into the model configuration, where ``lands`` says so.
        variable: the environment variable, where ``lands`` says so.
        needs_onnxruntime: it has an effect only where ONNX Runtime is the engine.
    """

    name: str
    summary: str
    backends: tuple[str, ...]
    lands: str
    default: Callable[[Room], str]
    values: Callable[[Room], tuple[str, ...]]
    read: Callable[[str], str]
    write: Callable[[schema.ModelConfig, str], None] | None = None
    variable: str = ""
    needs_onnxruntime: bool = False


@dataclass(frozen=True)
class Axis:
    """The values of one knob that a search may try, in order, with the default among them."""

    knob: str
    values: tuple[str, ...]
    default: str
