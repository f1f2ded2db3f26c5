"""All experiments there are: every module of ``experiments/`` that has one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from loadtest.playbook import experiments
from loadtest.playbook.experiment import Experiment
from serving.errors import UsageError


@cache
def catalogue() -> Mapping[str, Experiment]:
    """By name, in the order of the names."""
    names = sorted(info.name for info in iter_modules(experiments.__path__))
    modules = [import_module(f"{experiments.__name__}.{name}") for name in names]
    found = [module.EXPERIMENT for module in modules if hasattr(module, "EXPERIMENT")]
    return {experiment.name: experiment for experiment in found}


def chosen(only: Iterable[str]) -> tuple[Experiment, ...]:
    """Those that are named, or all.

    Raises:
        UsageError: a name is unknown.
    """
    known = catalogue()
    names = tuple(dict.fromkeys(only))
    for name in names:
        if name not in known:
            raise UsageError(
                f"there is no experiment {name!r}", hint=f"Experiments: {', '.join(known)}."
            )
    return tuple(known[name] for name in names) if names else tuple(known.values())
