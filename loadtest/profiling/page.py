"""``profile.html``: where the time goes, on one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from markupsafe import Markup

from loadtest.folder import ResultsFolder
from loadtest.profiling import figures, wording
from loadtest.profiling.record import ModelProfile
from loadtest.profiling.stacks import parse, tree_of
from loadtest.report import numbers
from loadtest.report.answer import Answer
from loadtest.report.templates import Figure, figure_data, figure_of, template
from loadtest.rounding import four_digits

NAME = "profile.html"
MOST_NODES = 30
_TEMPLATE = Path(__file__).with_name("profile.html.j2")


def write_page(folder: ResultsFolder, record: ModelProfile) -> Path:
    """Write the page beside what it is made from, whole or not at all; returns its path."""
    stacks = folder.path / record.server.stacks if record.server else None
    text = stacks.read_text("utf-8", "replace") if stacks and stacks.is_file() else ""
    return folder.write_page(NAME, render(record, text))


def render(record: ModelProfile, stacks: str) -> str:
    """The page; whatever a user may have written is escaped. ``stacks`` are folded lines."""
    page: str = template(_TEMPLATE).render(
        record=record,
        manifest=record.manifest,
        settings=record.manifest.settings,
        answer=_answer(record),
        figures={figure.id: figure for figure in _figures(record, stacks)},
        most_nodes=MOST_NODES,
        most_shown=figures.MOST_BARS,
        observer_text=wording.observer_text,
        precision_text=wording.precision_text,
        breakable=breakable,
        four_digits=four_digits,
        n=numbers,
    )
    return page


def breakable(name: str) -> Markup:
    """A path or a node's name that may be broken at its slashes."""
    return Markup("/<wbr>").join(name.split("/"))


def _answer(record: ModelProfile) -> Answer:
    found = (record.runtime, record.torch, record.server)
    if not any(found):
        return Answer("none", "Nothing profiled")
    if not record.complete:
        return Answer("open", "Interrupted")
    return Answer("winner", "Profiled") if all(found) else Answer("open", "Profiled in part")


def _figures(record: ModelProfile, stacks: str) -> Iterator[Figure]:
    if record.runtime is not None:
        yield figure_of(
            "runtime-operators",
            "Operators in ONNX Runtime",
            "Kernels of one run by type, after ONNX Runtime has fused and reordered the graph.",
            "Bar chart of the milliseconds that each type of operator takes in one run.",
            figures.operator_figure(record.runtime.by_type, record.runtime.runs),
        )
    if record.torch is not None:
        yield figure_of(
            "torch-operators",
            "Operators in PyTorch",
            "The time that an operator took itself, without those that it called.",
            "Bar chart of the milliseconds that each operator takes in one run.",
            figures.operator_figure(record.torch.by_type, record.torch.runs, colour=1),
        )
    if record.server is not None and record.server.busy:
        server = record.server
        yield figure_of(
            "groups",
            "What the server was busy with",
            "Samples of threads that did not wait, by the innermost function that tells.",
            "Bar chart of the share of busy samples by purpose.",
            figures.group_figure(server.groups),
        )
        tree = tree_of(parse(stacks), f"{server.backend} under load")
        if tree.count:
            yield Figure(
                "flame",
                "Flame graph",
                "A frame is as wide as its share of the busy samples, and lies below its caller. "
                "Click on one to look closer, and on the top one to come back. Colours are those "
                "of the bars above; frames under 0.4% are not drawn.",
                "Flame graph of the server's busy stacks. The functions with most samples are in "
                f"the table; {server.stacks} has every stack.",
                figure_data(figures.flame_figure(tree)),
            )
