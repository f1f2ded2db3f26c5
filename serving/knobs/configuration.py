"""Settings of one backend: read, checked, made comparable, and put where they take effect.

A backend is named by its label, such as ``triton`` or ``fastapi:torch``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tritonclient.grpc import model_config_pb2 as schema

from serving.errors import UsageError
from serving.knobs.base import Axis, Knob, Room, Setting
from serving.knobs.table import KNOBS, OFF, batches


@dataclass(frozen=True)
class _Inert:
    """When turning ``knob`` changes nothing, and why; it then counts as at ``becomes``.

    Attributes:
        needs: the other knob that decides; the rule is void for backends without it.
        becomes: the default where ``None``.
    """

    knob: str
    needs: str
    when: Callable[[Setting], bool]
    why: str
    becomes: str | None = None


_INERT = (
    _Inert(
        "execution_mode",
        "inter_op_threads",
        # ONNX Runtime then makes no pool and runs sequentially (inference_session.cc).
        lambda s: s["inter_op_threads"] == "1",
        "parallel execution needs inter_op_threads of 2 or more",
        "sequential",
    ),
    _Inert(
        "inter_op_threads",
        "execution_mode",
        lambda s: s["execution_mode"] == "sequential",
        "inter_op_threads needs execution_mode=parallel",
    ),
    _Inert(
        "memory_pattern",
        "execution_mode",
        # session_state.cc: patterns are planned for sequential execution only.
        lambda s: s["execution_mode"] == "parallel",
        "memory_pattern needs execution_mode=sequential",
    ),
    _Inert(
        "queue_delay_us",
        "max_batch_size",
        lambda s: s["max_batch_size"] == "1" and s["queue_delay_us"] != OFF,
        "queue_delay_us waits for nothing with max_batch_size=1",
    ),
    _Inert(
        "max_batch_size",
        "queue_delay_us",
        lambda s: s["queue_delay_us"] == OFF,
        "max_batch_size joins nothing with queue_delay_us=off",
    ),
)
"""In this order: a later rule sees what an earlier one has made of the setting."""


def knobs_of(label: str) -> Mapping[str, Knob]:
    """The knobs that have an effect on the backend, by name."""
    name, _, option = label.partition(":")
    by_onnxruntime = name != "fastapi" or option in ("", "onnxruntime")
    return {
        knob.name: knob
        for knob in KNOBS.values()
        if name in knob.backends and (by_onnxruntime or not knob.needs_onnxruntime)
    }


def default_setting(label: str, room: Room) -> Setting:
    """What is launched without a setting: every knob of the backend with its value."""
    return {name: knob.default(room) for name, knob in knobs_of(label).items()}


def axes(label: str, room: Room) -> tuple[Axis, ...]:
    """The knobs that have more than one value here."""
    found = []
    for name, knob in knobs_of(label).items():
        default, values = knob.default(room), knob.values(room)
        if default not in values:
            values = _in_order((*values, default))
        if len(values) > 1:
            found.append(Axis(name, values, default))
    return tuple(found)


def parse_setting(label: str, texts: Iterable[str]) -> Setting:
    """The setting that the user wrote as ``NAME=VALUE``, once per knob.

    Raises:
        UsageError: a text is no such pair, or as ``checked`` says.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{text!r} sets nothing", hint="Write NAME=VALUE.")
        if name in found:
            raise UsageError(f"{name} is set twice", hint="Write each knob once.")
        found[name] = value
    return checked(label, found)


def checked(label: str, setting: Setting) -> Setting:
    """``setting`` with every value in its one form.

    Raises:
        UsageError: the backend has no such knob, or the knob no such value.
    """
    known = knobs_of(label)
    found = {}
    for name, value in setting.items():
        if name not in known:
            raise UsageError(
                f"{label} has no knob {name!r}",
                hint=f"Its knobs: {', '.join(known)}." if known else "It has none at all.",
            )
        try:
            found[name] = known[name].read(value)
        except ValueError as error:
            raise UsageError(f"{name}={value} cannot be set", hint=f"Write {error}.") from None
    return found


def allowed(label: str, setting: Setting, room: Room) -> str:
    """Why a checked ``setting`` makes no sense here; empty when it does."""
    default = default_setting(label, room)
    full = {**default, **setting}
    reason = _unfit(full, default, room)
    if reason:
        return reason
    for rule in _rules(full):
        value = full[rule.knob]
        if rule.when(full) and value not in (default[rule.knob], rule.becomes):
            return rule.why
    needed = threads(full)
    if needed > max(room.threads, threads(default)):
        return f"{needed} inference threads are above the {room.threads:g} that there is room for"
    return ""


def _unfit(full: Setting, default: Setting, room: Room) -> str:
    """Why the model cannot be served so; empty when it can."""
    for name in ("max_batch_size", "queue_delay_us"):
        if full.get(name) != default.get(name) and not batches(room):
            return f"{name} cannot be set, since requests for this model are never joined"
    size, limit = int(full.get("max_batch_size", "1")), room.config.max_batch_size
    if limit and not 1 <= size <= limit:
        return f"max_batch_size={size} is outside 1 to {limit}, which is what the model takes"
    if full.get("memory_arena") == OFF and "cpu" in room.config.execution.arena_shrinkage:
        return "memory_arena=off leaves nothing to the arena shrinkage that the model asks for"
    return ""


def canonical(label: str, setting: Setting, room: Room) -> Setting:
    """Every knob of the backend; those that change nothing beside the others at their default.

    Two settings that launch the same server are equal.
    """
    default = default_setting(label, room)
    full = {**default, **setting}
    for rule in _rules(full):
        if rule.when(full):
            full[rule.knob] = rule.becomes or default[rule.knob]
    return full


def threads(setting: Setting) -> int:
    """Inference threads of the server that a full setting launches."""
    at_once = int(setting.get("intra_op_threads", "1"))
    if setting.get("execution_mode") == "parallel":
        # The operators that run at once share the threads inside an operator.
        at_once += int(setting["inter_op_threads"]) - 1
    copies = ("replicas", "instances", "workers", "worker_threads")
    for name in copies:
        at_once *= int(setting.get(name, "1"))
    return at_once


def write_setting(message: schema.ModelConfig, setting: Setting) -> None:
    """Put what of a checked setting is the model configuration's into ``message``."""
    for name, value in setting.items():
        write = KNOBS[name].write
        if write is not None:
            write(message, value)


def environment(setting: Setting) -> Mapping[str, str]:
    """The environment variables that a checked setting stands for."""
    return {
        KNOBS[name].variable: value
        for name, value in setting.items()
        if KNOBS[name].variable and value != "default"
    }


def describe(setting: Setting) -> str:
    """The setting in one line, as ``--set`` takes it."""
    return " ".join(f"{name}={value}" for name, value in setting.items())


def _rules(full: Setting) -> Iterable[_Inert]:
    return (rule for rule in _INERT if rule.knob in full and rule.needs in full)


def _in_order(values: tuple[str, ...]) -> tuple[str, ...]:
    """Words first, then numbers by size."""
    return tuple(sorted(values, key=lambda text: int(text) if text.isdecimal() else -1))
