"""What can go wrong, said in one line: what is wrong, where, and the next step.

Each kind has its own exit code, so a script can tell a typing mistake from a server that died.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar


class InfersweepError(Exception):
    """Base of every error that a user may see.

    Args:
        what: what is wrong and where, without a final full stop.
        hint: the next step, as a sentence the user can act on.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}. {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        """So that it can be told to another process."""
        return partial(type(self), hint=self.hint), (self.what,)


class UsageError(InfersweepError):
    """The command line or a settings file asks for something that cannot be."""

    exit_code = 2


class MachineError(InfersweepError):
    """The machine lacks something: a library, a program, disk, a GPU, a free port."""

    exit_code = 3


class FetchError(InfersweepError):
    """A package could not be downloaded, or what arrived is not what was pinned."""

    exit_code = 4


class ModelError(InfersweepError):
    """A model, its configuration or its repository is unusable."""

    exit_code = 5


class ServerError(InfersweepError):
    """A server did not start, died, or does not speak the protocol."""

    exit_code = 6


class ParityError(InfersweepError):
    """A server answers, but not what the reference session answers."""

    exit_code = 7


class LoadError(InfersweepError):
    """The load generator failed, or no run was valid."""

    exit_code = 8


class ResultsError(InfersweepError):
    """A results folder is missing, damaged, or belongs to other settings."""

    exit_code = 9


INTERRUPTED_EXIT_CODE = 130
