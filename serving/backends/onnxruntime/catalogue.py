"""Which models are served: load, unload, reload, find.

A version that is on disk anew is loaded and warmed beside the old one; then requests go to it, and
the old one finishes what it has. A load that fails leaves what was served as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from serving.backends.onnxruntime.faults import UnknownModelError
from serving.backends.onnxruntime.loaded import LoadedVersion, prepare
from serving.backends.onnxruntime.pipeline import Loaded, LoadedPipeline
from serving.backends.onnxruntime.settings import Limits
from serving.errors import InfersweepError, ModelError
from serving.exposition import Source
from serving.models.pipeline import require_known_form
from serving.models.repository import Model, find_model, list_models
from serving.session import Session
from serving.statistics import VersionStatistics


@dataclass(frozen=True)
class IndexEntry:
    """Attributes: ``state`` is one of the protocol's words; empty for a model never loaded."""

    name: str
    version: str
    state: str
    reason: str = ""


@dataclass
class _Served:
    """A model that was asked for; ``versions`` are replaced as a whole, never changed.

    Attributes:
        failed: what lay on disk when it could last not be loaded, so that it is not tried again.
    """

    versions: Mapping[int, Loaded] = field(default_factory=dict)
    state: str = "LOADING"
    reason: str = ""
    failed: object = None
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def newest(self) -> Loaded | None:
        return self.versions[max(self.versions)] if self.versions else None


class Catalogue:
    """The models of one repository. Everything runs on the loop; only opening sessions does not."""

    def __init__(self, root: Path, limits: Limits, slo_ns: int | None = None) -> None:
        self._root = root
        self._limits = limits
        self._slo_ns = slo_ns
        self._steps: set[str] = set()
        self._served: dict[str, _Served] = {}
        self._routes: dict[tuple[str, str], Loaded] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __contains__(self, asked: tuple[str, str]) -> bool:
        """Whether a name and a version, empty for the newest, are served."""
        return asked in self._routes

    def find(self, name: str, version: str) -> Loaded:
        """The version called ``version``, the newest one when that is empty.

        Raises:
            UnknownModelError: it is not served.
        """
        found = self._routes.get((name, version))
        if found is None:
            asked = f"{name!r} version {version}" if version else repr(name)
            served = ", ".join(f"{one} version {number}" for one, number in self._routes if number)
            raise UnknownModelError(f"model {asked} is not served; served: {served or 'nothing'}")
        return found

    def versions_of(self, name: str) -> tuple[int, ...]:
        """The versions of ``name`` that are served, oldest first."""
        return tuple(sorted(self._served[name].versions))

    def all(self) -> Iterator[Loaded]:
        """Every version that is served."""
        for _, served in sorted(self._served.items()):
            yield from served.versions.values()

    def sources(self) -> list[Source]:
        """What is told of each version that is served."""
        return [one.source for one in self.all()]

    def index(self, *, only_ready: bool = False) -> list[IndexEntry]:
        """Every model of the repository and every version that is served, or the latter alone."""
        entries = []
        for model in list_models(self._root):
            served = self._served.get(model.name)
            if served is None:
                entries.append(IndexEntry(model.name, "", ""))
            elif not served.versions:
                entries.append(IndexEntry(model.name, "", served.state, served.reason))
            else:
                entries += [
                    IndexEntry(model.name, str(number), "READY", one.unbatched)
                    for number, one in served.versions.items()
                ]
        return [entry for entry in entries if entry.state == "READY" or not only_ready]

    async def load(self, name: str) -> None:
        """Serve the versions of ``name`` that lie on disk and that its policy names.

        The steps of a pipeline are loaded before it, and can be asked by themselves, as with
        Triton.

        Raises:
            ModelError: there is no such model, or it cannot be served.
            MachineError: this machine cannot run it.
        """
        model = await asyncio.to_thread(find_model, name, self._root)
        served = self._served.setdefault(name, _Served())
        async with served.changing:
            try:
                for step in await asyncio.to_thread(_steps, model):
                    self._steps.add(step.name)
                    await self.load(step.name)
                versions = await self._versions(model, served.versions)
            except InfersweepError as error:
                served.reason = str(error)
                if not served.versions:
                    served.state = "UNAVAILABLE"
                raise
            self._switch(name, served, versions)
            served.state, served.reason = "READY", ""

    async def unload(self, name: str) -> None:
        """Serve ``name`` no longer; returns when its memory is free.

        Raises:
            UnknownModelError: it is not served.
        """
        served = self._served.get(name)
        if served is None:
            raise UnknownModelError(f"model {name!r} is not served")
        async with served.changing:
            closing = self._switch(name, served, {})
            served.state, served.reason = "UNAVAILABLE", "unloaded"
        await asyncio.gather(*closing)

    async def poll(self) -> None:
        """Reload each model whose files have changed."""
        for name, served in list(self._served.items()):
            if served.changing.locked() or not served.versions:
                continue
            found: object = None
            try:
                found = await asyncio.to_thread(_signatures, Model(self._root, name))
                loaded = {number: one.signature for number, one in served.versions.items()}
                if found not in (loaded, served.failed):
                    await self.load(name)
            except (InfersweepError, OSError) as error:
                # Half a copy, perhaps: the next look sees the rest of it.
                if found != served.failed or served.reason != str(error):
                    print(f"{name} stays as it is: {error}", flush=True)  # noqa: T201
                served.failed, served.reason = found, str(error)

    async def close(self) -> None:
        """Unload everything."""
        for name in list(self._served):
            await self.unload(name)

    async def _versions(self, model: Model, old: Mapping[int, Loaded]) -> dict[int, Loaded]:
        signatures = await asyncio.to_thread(_signatures, model)
        if not signatures:
            raise ModelError(
                f"model {model.name!r} in {model.root} has no version to serve",
                hint=f"Build it with `infersweep models build {model.name}`, or change its policy.",
            )
        kept = {n: one for n, one in old.items() if signatures.get(n) == one.signature}
        new: dict[int, Loaded] = {}
        try:
            for number in signatures.keys() - kept.keys():
                new[number] = await self._open(model, number, signatures[number])
        except InfersweepError:
            await asyncio.gather(*(one.close() for one in new.values()))
            raise
        return kept | new

    async def _open(self, model: Model, number: int, signature: object) -> Loaded:
        # The objective is one for whole answers, and those of a step are parts of some.
        statistics = VersionStatistics(None if model.name in self._steps else self._slo_ns)
        if model.front is not None:
            pipeline = LoadedPipeline(model, number, self.find, self._limits, signature, statistics)
            print(f"{pipeline.name} version {number}: ready", flush=True)  # noqa: T201
            return pipeline
        prepared = await asyncio.to_thread(prepare, model, number)
        loaded = LoadedVersion(prepared, self._limits, signature, statistics)
        _announce(loaded)
        return loaded

    def _switch(
        self, name: str, served: _Served, versions: Mapping[int, Loaded]
    ) -> list[asyncio.Task[None]]:
        """From here on requests go to ``versions``; the others are being closed."""
        old, served.versions = served.versions, versions
        for number in old:
            self._routes.pop((name, str(number)), None)
        self._routes.pop((name, ""), None)
        self._routes.update({(name, str(number)): one for number, one in versions.items()})
        if served.newest:
            self._routes[name, ""] = served.newest
        closing = [
            asyncio.create_task(one.close())
            for number, one in old.items()
            if versions.get(number) is not one
        ]
        self._closing.update(closing)
        for task in closing:
            task.add_done_callback(self._closing.discard)
        return closing


def _steps(model: Model) -> tuple[Model, ...]:
    """Raises ModelError when the configuration cannot be used."""
    require_known_form(model.config)
    return model.steps


def _signatures(model: Model) -> dict[int, object]:
    """Each version to serve with what lies on disk for it, so that a change is seen."""
    policy = model.config.versions
    config = (model.folder / "config.pbtxt").read_bytes()
    signatures: dict[int, object] = {}
    for number in policy.choose(model.versions):
        files = sorted((model.folder / str(number)).rglob("*"))
        stats = [(file.name, file.stat()) for file in files]
        signatures[number] = (
            config,
            tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats),
        )
    return signatures


def _announce(one: LoadedVersion) -> None:
    told = one.prepared
    how = f"unbatched, since {told.unbatched}" if told.unbatched else "ready"
    session = told.sessions[0]
    engine = ""
    if isinstance(session, Session):
        engine += f"; TensorRT engine {session.engine}" if session.engine else ""
        engine += f"; operators {dict(session.nodes)}" if session.nodes else ""
    print(  # noqa: T201  (the server's log)
        f"{one.name} version {one.version} on {session}: {how}; "
        f"loaded in {told.load_s:.2f} s, warmed up in {told.warm_up_s:.2f} s{engine}",
        flush=True,
    )
