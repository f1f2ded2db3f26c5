"""A dashboard as Grafana's JSON: variables, sections of panels, and where each panel stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from loadtest.dashboards.panels import DATA_SOURCE, Json, Panel, stable_id

COLUMNS = 24
TAG = "infersweep"
_SCHEMA = 39
"""Grafana 11.0's; newer ones bring it up to date when they load it."""


@dataclass(frozen=True)
class Section:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """Attributes: ``name`` is that of its file and the end of its uid, which never changes."""

    name: str
    title: str
    description: str
    variables: tuple[Json, ...]
    sections: tuple[Section, ...]
    annotations: tuple[Json, ...] = ()

    @property
    def uid(self) -> str:
        return f"infersweep-{self.name}"

    def to_json(self) -> Json:
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": [TAG],
            "timezone": "browser",
            "editable": True,
            "graphTooltip": 1,
            "time": {"from": "now-30m", "to": "now"},
            "refresh": "5s",
            "schemaVersion": _SCHEMA,
            "templating": {"list": list(self.variables)},
            "annotations": {"list": list(self.annotations)},
            "links": [_LINK],
            "panels": list(_placed(self.sections)),
        }


_LINK: Json = {
    "title": "infersweep",
    "type": "dashboards",
    "icon": "external link",
    "tooltip": "The other dashboards, of the same run and time",
    "url": "",
    "tags": [TAG],
    "asDropdown": False,
    "targetBlank": False,
    "includeVars": True,
    "keepTime": True,
}


def _placed(sections: tuple[Section, ...]) -> Iterator[Json]:
    """Panels from left to right, a new line where one does not fit, a heading per section."""
    y = 0
    for section in sections:
        yield {
            "id": stable_id(f"section {section.title}"),
            "type": "row",
            "title": section.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
            "panels": [],
        }
        y += 1
        x = line = 0
        for panel in section.panels:
            if x + panel.width > COLUMNS:
                x, y, line = 0, y + line, 0
            yield panel.to_json(x, y)
            x, line = x + panel.width, max(line, panel.height)
        y += line


def data_source() -> Json:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "refresh": 1,
        "hide": 0,
    }


def run(sample: str) -> Json:
    """The newest first: the name of a run begins with its time unless somebody chose another."""
    return {**_values("run", "Run", sample), "sort": 2}


def any_of(label: str, title: str, sample: str, *, multi: bool = False) -> Json:
    """All values of ``label`` unless one is chosen, or several with ``multi``.

    Not of the chosen run alone: Grafana takes no name with a line end inside ``label_values``.
    """
    return {
        **_values(label, title, sample),
        "sort": 1,
        "multi": multi,
        "includeAll": True,
        # One short pattern in place of a list of all values.
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all", "selected": True},
    }


def _values(label: str, title: str, sample: str) -> Json:
    query = f"label_values({sample}, {label})"
    return {
        "type": "query",
        "name": label,
        "label": title,
        "datasource": DATA_SOURCE,
        "definition": query,
        "query": {
            "qryType": 1,
            "query": query,
            "refId": "PrometheusVariableQueryEditor-VariableQuery",
        },
        "refresh": 2,
        "hide": 0,
    }


_QUANTILES = {"p50": "0.5", "p90": "0.9", "p99": "0.99", "p99.9": "0.999"}


def quantile_choice(usual: str = "p99") -> Json:
    options = [
        {"text": text, "value": value, "selected": text == usual}
        for text, value in _QUANTILES.items()
    ]
    return {
        "type": "custom",
        "name": "quantile",
        "label": "Percentile",
        "query": ",".join(f"{text} : {value}" for text, value in _QUANTILES.items()),
        "options": options,
        "current": next(option for option in options if option["selected"]),
        "multi": False,
        "includeAll": False,
        "hide": 0,
    }


def steps_marked(name: str, expr: str, title: str, tags: str) -> Json:
    """An annotation for every series of ``expr``, where it is above zero."""
    return {
        "name": name,
        "datasource": DATA_SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": "blue",
        "expr": expr,
        "titleFormat": title,
        "textFormat": "",
        "tagKeys": tags,
        "step": "5s",
        "useValueForTime": False,
    }
