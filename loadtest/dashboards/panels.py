"""Panels as Grafana's JSON: one constructor per kind of panel that is used."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from serving.metrics.buckets import FIRST_NS, LAST_NS

Json = dict[str, Any]

DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
NO_DATA = "nothing was scraped in this time range"
NO_OBJECTIVE = "no objective was stated"
NO_CEILING = "the ceiling is not known: infersweep calibrate measures it"

BEYOND_BUCKETS: tuple[Json, ...] = (
    {
        "type": "range",
        "options": {
            "from": LAST_NS / 1e9,
            "to": None,
            "result": {"text": f"above {LAST_NS / 1e9:g} s", "color": "red", "index": 0},
        },
    },
    {
        "type": "range",
        "options": {
            "from": None,
            "to": FIRST_NS / 1e9,
            "result": {"text": f"at most {FIRST_NS / 1e3:g} µs", "index": 1},
        },
    },
)
"""A percentile beyond the last bound comes back as that bound, one below the first as a guess."""


@dataclass(frozen=True)
class Target:
    """One query of a panel.

    Attributes:
        instant: one value at the end of the time range, not a value at every step.
    """

    expr: str
    legend: str
    instant: bool = False
    shape: Literal["time_series", "table", "heatmap"] = "time_series"

    def to_json(self, ref: str) -> Json:
        return {
            "refId": ref,
            "datasource": DATA_SOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "legendFormat": self.legend,
            "format": self.shape,
            "instant": self.instant,
            "range": not self.instant,
        }


@dataclass(frozen=True)
class Panel:
    """A panel without its place.

    Attributes:
        unit: one of Grafana's, or ``suffix:`` and a word.
        absent: what stands there when nothing comes back.
        thresholds: colours from these values on; the first has no value.
    """

    kind: str
    title: str
    description: str
    unit: str
    targets: tuple[Target, ...]
    options: Mapping[str, Any]
    custom: Mapping[str, Any] = field(default_factory=dict)
    width: int = 12
    height: int = 8
    absent: str = NO_DATA
    mappings: tuple[Json, ...] = ()
    thresholds: tuple[tuple[float | None, str], ...] = ((None, "green"),)
    color: str = "palette-classic"
    least: float | None = None
    decimals: int | None = None
    transformations: tuple[Json, ...] = ()
    max_data_points: int | None = None

    @property
    def id(self) -> int:
        """The same as long as the title is, wherever the panel stands."""
        return stable_id(self.title)

    def to_json(self, x: int, y: int) -> Json:
        defaults: Json = {
            "unit": self.unit,
            "noValue": self.absent,
            "mappings": list(self.mappings),
            "color": {"mode": self.color},
            "thresholds": {
                "mode": "absolute",
                "steps": [{"value": value, "color": color} for value, color in self.thresholds],
            },
            "custom": dict(self.custom),
        }
        if self.least is not None:
            defaults["min"] = self.least
        if self.decimals is not None:
            defaults["decimals"] = self.decimals
        panel: Json = {
            "id": self.id,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": DATA_SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": [
                target.to_json(chr(ord("A") + index)) for index, target in enumerate(self.targets)
            ],
            "options": dict(self.options),
            "fieldConfig": {"defaults": defaults, "overrides": []},
        }
        if self.transformations:
            panel["transformations"] = list(self.transformations)
        if self.max_data_points is not None:
            panel["maxDataPoints"] = self.max_data_points
        return panel


def stable_id(title: str) -> int:
    return zlib.crc32(title.encode()) % 1_000_000


_TOOLTIP = {"mode": "multi", "sort": "desc"}


def _legend(*calcs: str, many: bool) -> Json:
    """A table, or a list where a table of ``many`` series would have to be scrolled."""
    shape = {"displayMode": "list", "calcs": []} if many else {"displayMode": "table"}
    return {"placement": "bottom", "showLegend": True, "calcs": [*calcs], **shape}


def lines(
    title: str,
    description: str,
    unit: str,
    *targets: Target,
    log: bool = False,
    stacked: bool = False,
    limit: float | None = None,
    many: bool | None = None,
    **more: Any,
) -> Panel:
    """Values over time; ``limit`` draws a dashed line, ``many`` makes room for many series."""
    custom: Json = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 30 if stacked else 5,
        "showPoints": "auto",
        "spanNulls": False,
        "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
    }
    if limit is not None:
        custom["thresholdsStyle"] = {"mode": "dashed"}
        more["thresholds"] = ((None, "green"), (limit, "red"))
    legend = _legend("lastNotNull", "max", many=len(targets) > 1 if many is None else many)
    options = {"legend": legend, "tooltip": _TOOLTIP}
    least = None if log else 0.0
    return Panel(
        "timeseries", title, description, unit, targets, options, custom, least=least, **more
    )


def seconds(title: str, description: str, *targets: Target, **more: Any) -> Panel:
    """Percentiles over time, on a logarithmic axis, with what lies beyond the buckets said so."""
    return lines(title, description, "s", *targets, log=True, mappings=BEYOND_BUCKETS, **more)


def stat(title: str, description: str, unit: str, *targets: Target, **more: Any) -> Panel:
    """One large number per series, of the whole time range."""
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "value_and_name",
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "wideLayout": True,
    }
    instant = tuple(replace(target, instant=True) for target in targets)
    style = {"width": 6, "height": 6, "color": "thresholds", **more}
    return Panel("stat", title, description, unit, instant, options, **style)


def states(title: str, description: str, unit: str, *targets: Target, **more: Any) -> Panel:
    """What held when; ``mappings`` name the states."""
    options = {
        "mergeValues": True,
        "showValue": "auto",
        "alignValue": "left",
        "rowHeight": 0.9,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    custom = {"lineWidth": 0, "fillOpacity": 70}
    return Panel("state-timeline", title, description, unit, targets, options, custom, **more)


def named(*names: tuple[float, str, str]) -> tuple[Json, ...]:
    """Mappings from values to words with a colour."""
    words = {
        f"{value:g}": {"text": text, "color": color, "index": index}
        for index, (value, text, color) in enumerate(names)
    }
    return ({"type": "value", "options": words},)


def heatmap(
    title: str, description: str, buckets: str, axis_unit: str, cell_unit: str, **more: Any
) -> Panel:
    """Counts by bucket over time; ``buckets`` are cumulative and keep ``le``."""
    options = {
        "calculate": False,
        "rowsFrame": {"layout": "auto"},
        "yAxis": {"axisPlacement": "left", "unit": axis_unit, "reverse": False},
        "cellValues": {"unit": cell_unit},
        "cellGap": 0,
        "showValue": "never",
        "filterValues": {"le": 1e-9},
        "color": {
            "mode": "scheme",
            "scheme": "Spectral",
            "fill": "dark-orange",
            "scale": "exponential",
            "exponent": 0.5,
            "steps": 64,
            "reverse": True,
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "legend": {"show": True},
        "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": True},
    }
    target = Target(buckets, "{{le}}", shape="heatmap")
    return Panel("heatmap", title, description, cell_unit, (target,), options, **more)


def table(
    title: str,
    description: str,
    expr: str,
    columns: Mapping[str, str],
    *,
    hidden: tuple[str, ...],
    **more: Any,
) -> Panel:
    """Labels as columns; ``columns`` maps a label to its heading, ``hidden`` are left out."""
    organise = {
        "id": "organize",
        "options": {
            "renameByName": dict(columns),
            "indexByName": {name: place for place, name in enumerate(columns)},
            "excludeByName": dict.fromkeys(hidden, True),
        },
    }
    target = Target(expr, "", instant=True, shape="table")
    options = {"showHeader": True, "cellHeight": "sm"}
    style = {"width": 24, "transformations": (organise,), **more}
    return Panel("table", title, description, "string", (target,), options, **style)
