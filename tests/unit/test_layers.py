"""Data moves downward: a module imports only what stands above it, or in its own package."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ORDER = (
    "serving.tolerance",
    "serving.protocol",
    "serving.fronthalf",
    "serving.compression",
    "serving.models",
    "serving.validation",
    "serving.cuda",
    "serving.gpu_libraries",
    "serving.shape_ranges",
    "serving.engine_cache",
    "serving.providers",
    "serving.marshalling",
    "serving.session",
    "serving.pipelines",
    "serving.rows",
    "serving.importing",
    "serving.deriving",
    "serving.arithmetic",
    "serving.linting",
    "serving.timerfd",
    "serving.batching",
    "serving.metrics",
    "serving.statistics",
    "serving.exposition",
    "serving.process",
    "serving.readiness",
    "serving.parity",
    "serving.preflight",
    "serving.knobs",
    "serving.backends",
    "serving.deployment",
    "serving.deployable",
    "loadtest.metrics",
    "loadtest.record",
    "loadtest.resources",
    "loadtest.energy_use",
    "loadtest.rounding",
    "loadtest.searched",
    "loadtest.explained",
    "loadtest.delivered",
    "loadtest.results",
    "loadtest.folder",
    "loadtest.schedule",
    "loadtest.camera_schedule",
    "loadtest.scenarios",
    "loadtest.histogram",
    "loadtest.confidence",
    "loadtest.significance",
    "loadtest.steadiness",
    "loadtest.warmup",
    "loadtest.payload",
    "loadtest.prepare",
    "loadtest.shared_memory",
    "loadtest.connection",
    "loadtest.engine",
    "loadtest.feeder",
    "loadtest.live",
    "loadtest.frames",
    "loadtest.recorder",
    "loadtest.counters",
    "loadtest.timings",
    "loadtest.trial",
    "loadtest.early_stop",
    "loadtest.links",
    "loadtest.capacity",
    "loadtest.generator",
    "loadtest.fleet",
    "loadtest.users",
    "loadtest.by_hand",
    "loadtest.locustfile",
    "loadtest.mlperf",
    "loadtest.loadgen",
    "loadtest.validity",
    "loadtest.delivery",
    "loadtest.trials",
    "loadtest.breakdown",
    "loadtest.analysis",
    "loadtest.shapes",
    "loadtest.ranking",
    "loadtest.objective",
    "loadtest.slo",
    "loadtest.runner",
    "loadtest.calibration",
    "loadtest.targets",
    "loadtest.page_cache",
    "loadtest.coldstart",
    "loadtest.questions",
    "loadtest.rig",
    "loadtest.window",
    "loadtest.sweep",
    "loadtest.contest",
    "loadtest.manifest",
    "loadtest.likeness",
    "loadtest.summary",
    "loadtest.highest",
    "loadtest.observing",
    "loadtest.dashboards",
    "loadtest.measures",
    "loadtest.gate",
    "loadtest.exporting",
    "loadtest.report",
    "loadtest.profiles",
    "loadtest.plan",
    "loadtest.tune",
    "loadtest.offload",
    "loadtest.soak",
    "loadtest.playbook",
    "loadtest.profiling",
    "loadtest.history",
    "loadtest.cli",
)
ANYWHERE = ("serving.errors", "serving.host")
ALONE = ("serving.exec_pinned", "serving.supervise", "serving.replicas")
LEAVES = ("loadtest.cli", "loadtest.locustfile")


def _modules() -> list[tuple[str, Path]]:
    files = [*ROOT.glob("serving/**/*.py"), *ROOT.glob("loadtest/**/*.py")]
    return [
        (".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), file)
        for file in files
        if file.read_text().strip()
    ]


def _layer(module: str) -> str | None:
    """The entry of ORDER that ``module`` belongs to."""
    for layer in (*ORDER, *ANYWHERE, *ALONE):
        if module == layer or module.startswith(layer + "."):
            return layer
    return None


def _imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name for name in found if name.split(".")[0] in ("serving", "loadtest")}


def _violations(module: str, imported: set[str]) -> list[str]:
    own = _layer(module)
    wrong = []
    for name in imported:
        layer = _layer(name)
        if layer in ANYWHERE or layer == own:
            continue
        unplaced = own in ANYWHERE or layer is None or own is None
        if unplaced or layer in LEAVES or ORDER.index(layer) > ORDER.index(own):
            wrong.append(name)
    return wrong


@pytest.mark.parametrize(
    ("module", "file"), _modules(), ids=lambda v: str(v) if "/" not in str(v) else ""
)
def test_imports_only_what_stands_above(module: str, file: Path) -> None:
    if module in ("serving", "loadtest"):
        assert not _imports(file)
        return
    assert _layer(module), f"{module} has no place in ORDER"
    assert not _violations(module, _imports(file))


def test_a_violation_is_found() -> None:
    assert _violations("serving.protocol", {"serving.backends.null"})
    assert _violations("serving.process", {"loadtest.results.Trial"})
    assert not _violations("loadtest.sweep", {"serving.errors.LoadError"})
