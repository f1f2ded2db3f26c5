"""Nothing that a file or a client says is run: no module takes apart what could be a program."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
BUILTINS = {"eval", "exec"}


def dangers(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            found.append(node.module or "")
        elif isinstance(node, ast.Call) and _unsafe(node):
            found.append(ast.unparse(node))
    return found


def _unsafe(call: ast.Call) -> bool:
    options = {option.arg: ast.unparse(option.value) for option in call.keywords}
    name = ast.unparse(call.func)
    if name in ("torch.load", "load_state_dict_from_url"):
        return options.get("weights_only") != "True"
    return name in BUILTINS or options.get("allow_pickle", "False") != "False"


@pytest.mark.parametrize(
    "file", sorted(ROOT.glob("serving/**/*.py")), ids=lambda file: str(file.relative_to(ROOT))
)
def test_nothing_is_unpickled(file: Path) -> None:
    assert dangers(file.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p, os",
        "from marshal import loads",
        "numpy.load(file, allow_pickle=True)",
        "np.load(file, allow_pickle=wanted)",
        "torch.load(file)",
        "torch.load(file, weights_only=False)",
        "eval(text)",
    ],
)
def test_a_danger_is_found(source: str) -> None:
    assert dangers(source)


def test_what_is_safe_is_let_be() -> None:
    safe = "np.load(file)\ntorch.load(file, weights_only=True)\nmodule.eval()\nimport marshalling"
    assert not dangers(safe)
