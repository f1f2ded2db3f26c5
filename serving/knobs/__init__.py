"""What can be turned on a server: one table of knobs, and settings of them.

A *knob* is something that the operator of a server can turn; a *setting* maps names of knobs to
values as text.
"""

from serving.knobs.base import Axis, Knob, Room, Setting
from serving.knobs.configuration import (
    allowed,
    axes,
    canonical,
    checked,
    default_setting,
    describe,
    environment,
    knobs_of,
    parse_setting,
    threads,
    write_setting,
)
from serving.knobs.table import KNOBS

__all__ = [
    "KNOBS",
    "Axis",
    "Knob",
    "Room",
    "Setting",
    "allowed",
    "axes",
    "canonical",
    "checked",
    "default_setting",
    "describe",
    "environment",
    "knobs_of",
    "parse_setting",
    "threads",
    "write_setting",
]
