"""The link that a run's load crosses; readiness, parity and metrics do without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtest.links.crossing import server_of
from loadtest.links.profile import link_profile
from loadtest.links.running import RunningLink, running_link
from loadtest.links.told import record_of, text_of
from loadtest.results import Settings

FACT = "link"
"""Of a backend, among what else is known of it."""


@contextmanager
def load_link(
    link: str | None, url: str, settings: Settings, log: Path, *, start: int
) -> Iterator[RunningLink | None]:
    """A relay to the server at ``url`` on the client's CPUs; ``None`` for no link.

    ``start`` counts those of one backend: repeats must not all meet the same outages, while the
    backends of one repeat do.

    Raises:
        UsageError: requests to it cannot go through a relay.
        ServerError: the relay did not start.
    """
    if link is None:
        yield None
        return
    with running_link(
        link,
        server_of(url),
        log=log,
        seed=settings.seed + start,
        each_connection=settings.link_per_connection,
        cpus=settings.client_cpus,
    ) as running:
        yield running


def link_fact(link: str | None, settings: Settings) -> dict[str, str]:
    """What a backend's record says of its link; empty for none.

    Raises:
        UsageError: there is no such profile.
    """
    if link is None:
        return {}
    profile = link_profile(link)
    return {FACT: text_of(record_of(profile, each_connection=settings.link_per_connection))}
