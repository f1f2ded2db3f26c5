"""What the installed ONNX Runtime can load: file format, operator sets, operators.

It is asked, not assumed: a model of one node is loaded again and again until the highest number
that it accepts is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from serving.errors import ModelError
from serving.models.normalise import nodes_of
from serving.providers import runtime_version

_CEILING = 1 << 12
_ALWAYS_LOADS = 7
_NOTHING_LOGGED = 4
_DEFAULT_DOMAINS = ("", "ai.onnx")


def require_loadable(model: onnx.ModelProto, label: str) -> None:
    """Raises ModelError when ONNX Runtime is too old for ``model`` or lacks its operators.

    Neither number is lowered: the operators may mean something else under another one.
    """
    highest = highest_ir_version()
    runtime = f"ONNX Runtime {runtime_version()}"
    if model.ir_version > highest:
        raise ModelError(
            f"{label}: its file format is IR version {model.ir_version}, and {runtime} reads "
            f"up to {highest}",
            hint="Export it again with an older onnx package, or install a newer ONNX Runtime.",
        )
    own = {function.domain for function in model.functions}
    used = {node.domain for node in nodes_of(model)}
    _require_domains(model, label, sorted(used - own - known_domains()))
    for imported in model.opset_import:
        domain = "" if imported.domain in _DEFAULT_DOMAINS else imported.domain
        if domain in own or domain not in known_domains():
            continue
        highest = highest_opset(domain)
        if imported.version > highest:
            raise ModelError(
                f"{label}: its operator set {domain or 'ai.onnx'} is version {imported.version}, "
                f"and {runtime} knows it up to {highest}",
                hint=f"Export it again with opset_version={highest}, or install a newer ONNX "
                "Runtime.",
            )
    _require_operators(model, label)


def _require_domains(model: onnx.ModelProto, label: str, unknown: list[str]) -> None:
    if not unknown:
        return
    operators = sorted({n.op_type for n in nodes_of(model) if n.domain == unknown[0]})
    raise ModelError(
        f"{label}: its operators {', '.join(operators)} are of domain {unknown[0]!r}, which ONNX "
        f"Runtime {runtime_version()} does not have",
        hint=f"It has {', '.join(sorted(filter(None, known_domains())))}: export the model without "
        "custom operators, or with them as functions inside the model.",
    )


def _require_operators(model: onnx.ModelProto, label: str) -> None:
    own = {(function.domain, function.name) for function in model.functions}
    for node in nodes_of(model):
        domain = "" if node.domain in _DEFAULT_DOMAINS else node.domain
        if (node.domain, node.op_type) not in own and (domain, node.op_type) not in _operators():
            raise ModelError(
                f"{label}: ONNX Runtime {runtime_version()} has no operator "
                f"{domain or 'ai.onnx'}.{node.op_type}",
                hint="Export it without that operator, or install a newer ONNX Runtime.",
            )


@cache
def highest_ir_version() -> int:
    """The newest file format that is read."""
    return _highest(lambda number: _loads(ir_version=number, opsets=[("", _ALWAYS_LOADS)]))


@cache
def highest_opset(domain: str) -> int:
    """The newest version of an operator set that is accepted."""
    others = [] if domain == "" else [("", _ALWAYS_LOADS)]
    return _highest(lambda number: _loads(ir_version=8, opsets=[*others, (domain, number)]))


@cache
def known_domains() -> frozenset[str]:
    """Domains of operators; the default one is the empty text."""
    return frozenset({domain for domain, _ in _operators()} | set(_DEFAULT_DOMAINS))


@cache
def _operators() -> frozenset[tuple[str, str]]:
    return frozenset((schema.domain, schema.name) for schema in get_all_operator_schema())


def _highest(accepted: Callable[[int], bool]) -> int:
    """The largest number below the ceiling that is ``accepted``, as all smaller ones are."""
    low, high = 1, _CEILING
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (middle, high) if accepted(middle) else (low, middle)
    return low


def _loads(*, ir_version: int, opsets: Iterable[tuple[str, int]]) -> bool:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "probe",
        [value("x", TensorProto.FLOAT, [1])],
        [value("y", TensorProto.FLOAT, [1])],
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets]
    model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _NOTHING_LOGGED
    options.intra_op_num_threads = 1
    try:
        onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception:  # noqa: BLE001, RUF100  (ONNX Runtime's exceptions share no base class)
        return False
    return True
