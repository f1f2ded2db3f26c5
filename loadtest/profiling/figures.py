"""Operators as bars, and a server's stacks as a flame graph. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from loadtest.profiling.record import Group, Operator
from loadtest.profiling.stacks import GROUPS, OTHER, Node, readable
from loadtest.report.figures import COLOURS, OBJECTIVE_COLOUR, lay_out, plain
from loadtest.rounding import four_digits

MOST_BARS = 12
_BAR_PX, _FRAME_PX = 30, 22
_LEAST_SHARE = 0.004
"""Narrower frames could be neither seen nor hit."""
_GROUP_COLOURS = {
    **dict(zip(GROUPS, COLOURS, strict=False)),
    OTHER: OBJECTIVE_COLOUR,
}


def operator_figure(operators: Sequence[Operator], runs: int, colour: int = 0) -> go.Figure:
    """Milliseconds of one run by type, the longest on top; the others together."""
    shown = list(operators[:MOST_BARS])
    names = [plain(one.op_type) for one in shown]
    times = [one.total_ms / runs for one in shown]
    shares = [one.share for one in shown]
    rest = operators[MOST_BARS:]
    if rest:
        names.append(f"{len(rest)} others")
        times.append(sum(one.total_ms for one in rest) / runs)
        shares.append(sum(one.share for one in rest))
    figure = go.Figure(
        go.Bar(
            x=times,
            y=names,
            orientation="h",
            marker={"color": COLOURS[colour]},
            text=[f"{share:.1%}" for share in shares],
            textposition="auto",
            hovertext=[
                f"<b>{name}</b><br>{four_digits(time)} ms of one run, {share:.1%}"
                for name, time, share in zip(names, times, shares, strict=True)
            ],
            hoverinfo="text",
            cliponaxis=False,
        )
    )
    _lay_out_bars(figure, len(names), "ms of one run")
    return figure


def group_figure(groups: Sequence[Group]) -> go.Figure:
    """Busy samples by what they were for."""
    figure = go.Figure(
        go.Bar(
            x=[100 * group.share for group in groups],
            y=[group.name for group in groups],
            orientation="h",
            marker={"color": [_GROUP_COLOURS[group.name] for group in groups]},
            text=[f"{group.share:.1%}" for group in groups],
            textposition="auto",
            hovertext=[f"<b>{group.name}</b><br>{group.samples:,} samples" for group in groups],
            hoverinfo="text",
            cliponaxis=False,
        )
    )
    _lay_out_bars(figure, len(groups), "% of busy samples")
    return figure


def _lay_out_bars(figure: go.Figure, count: int, title: str) -> None:
    lay_out(figure, height=90 + _BAR_PX * count)
    figure.update_layout(
        showlegend=False,
        margin={"t": 16},
        uniformtext={"minsize": 10, "mode": "show"},
        bargap=0.25,
    )
    figure.update_xaxes(title=title, rangemode="tozero", tickformat=",")
    figure.update_yaxes(autorange="reversed", showgrid=False)


class _Drawn(NamedTuple):
    """One frame of the flame graph; ``parent`` is the place of its caller."""

    node: Node
    parent: str
    depth: int


def flame_figure(tree: Node) -> go.Figure:
    """An icicle: callers on top, as wide as their share of the busy samples."""
    least = _LEAST_SHARE * tree.count
    drawn = list(_frames(tree, least))
    deepest = max(one.depth for one in drawn) + 1
    shares = [one.node.count / tree.count for one in drawn]
    names = [plain(readable(one.node.name)) for one in drawn]
    figure = go.Figure(
        go.Icicle(
            ids=[str(place) for place in range(len(drawn))],
            labels=names,
            parents=[one.parent for one in drawn],
            values=[one.node.count for one in drawn],
            branchvalues="total",
            sort=False,
            tiling={"orientation": "v", "pad": 1},
            marker={
                "colors": [_GROUP_COLOURS[one.node.group] for one in drawn],
                "line": {"width": 0},
            },
            textfont={"color": "white"},
            textposition="middle left",
            pathbar={"visible": False},
            leaf={"opacity": 1},
            hovertext=[
                f"<b>{name}</b><br>{one.node.count:,} samples, {share:.1%}<br>{one.node.group}"
                for name, one, share in zip(names, drawn, shares, strict=True)
            ],
            hoverinfo="text",
        )
    )
    lay_out(figure, height=40 + _FRAME_PX * deepest)
    figure.update_layout(
        showlegend=False,
        margin={"l": 0, "r": 0, "t": 8, "b": 8},
        uniformtext={"minsize": 9, "mode": "hide"},
    )
    return figure


def _frames(tree: Node, least: float) -> Iterator[_Drawn]:
    """Callers before what they call, siblings by name, as flame graphs have them."""
    waiting, place = [_Drawn(tree, "", 0)], 0
    while waiting:
        one = waiting.pop()
        yield one
        own = str(place)
        place += 1
        children = sorted(one.node.children.values(), key=lambda child: child.name, reverse=True)
        waiting += [_Drawn(child, own, one.depth + 1) for child in children if child.count >= least]
