"""The configuration of Prometheus: the same for a run on this machine and for the compose stack."""

from __future__ import annotations

import json
from pathlib import Path

RULE_FILES = ("recording.yml", "alerts.yml")
_LOOK_FOR_TARGETS = "5s"

_CONFIGURATION = """\
global:
  scrape_interval: {interval}
  evaluation_interval: {interval}
rule_files:
{rules}
scrape_configs:
  # Every target comes from a file that is there while the target is. The file says its job, backend
  # and run; a job that stands in a file wins over the job_name here.
  - job_name: server
    file_sd_configs: &files
      - files: [{targets}]
        refresh_interval: {refresh}
    relabel_configs:
      - source_labels: [job]
        regex: generator
        action: drop
  # A generator tells of many backends at one address, so its own labels win.
  - job_name: generators
    honor_labels: true
    file_sd_configs: *files
    relabel_configs:
      - source_labels: [job]
        regex: generator
        action: keep
"""


def render(scrape_interval_s: float, targets: Path, rules: Path) -> str:
    """The text of prometheus.yml.

    Args:
        scrape_interval_s: also how often rules are evaluated; counted in whole milliseconds.
        targets: folder whose ``*.json`` are ``file_sd_config`` files (``loadtest.targets``).
        rules: folder with ``RULE_FILES``.
    """
    return _CONFIGURATION.format(
        interval=duration(scrape_interval_s),
        # A JSON string is a YAML string, whatever the path holds.
        targets=json.dumps(str(targets / "*.json")),
        rules="\n".join(f"  - {json.dumps(str(rules / name))}" for name in RULE_FILES),
        refresh=_LOOK_FOR_TARGETS,
    )


def duration(seconds: float) -> str:
    """A duration as Prometheus writes it: ``20s``, ``500ms``.

    Raises:
        ValueError: less than a millisecond.
    """
    ms = round(seconds * 1000)
    if ms < 1:
        raise ValueError(f"{seconds} s is less than a millisecond")
    return f"{ms}ms" if ms % 1000 else f"{ms // 1000}s"
