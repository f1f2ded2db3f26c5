"""A script that traces a server on an NVIDIA GPU with Nsight Systems, under load. Pure.

https://docs.nvidia.com/nsight-systems/UserGuide/index.html
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from serving.backends.base import Launch

NAME = "nsight.sh"
TRACED = "cuda,nvtx,osrt,cudnn,cublas"

_SCRIPT = """\
#!/bin/sh
# Traces {label} under load with Nsight Systems: run it with `sh {name}`.
# Then open server.nsys-rep in Nsight Systems, or `nsys stats server.nsys-rep`.
set -eu
cd "$(dirname "$0")"
{env}
# The server's process writes its id, so that it alone is told to end.
nsys profile --trace={traced} --output=server --force-overwrite=true \\
  sh -c 'echo $$ > server.pid; exec "$@"' server \\
  {server} &
nsys_pid=$!
trap 'kill "$(cat server.pid)" 2>/dev/null || true; wait "$nsys_pid" || true' EXIT
tries=0
until curl --fail --silent --output /dev/null {url}/v2/health/ready; do
  kill -0 "$nsys_pid"
  tries=$((tries + 1))
  [ "$tries" -le {ready_within_s} ] || {{ echo "the server is not ready" >&2; exit 1; }}
  sleep 1
done
{load}
"""


def script_of(launch: Launch, cpus: Sequence[int], load: Sequence[str]) -> str:
    """The very command and environment of ``launch``, and what loads it meanwhile."""
    env = (f"export {name}={shlex.quote(value)}" for name, value in launch.env.items())
    pinned = ["taskset", "--cpu-list", ",".join(map(str, cpus)), *launch.argv]
    return _SCRIPT.format(
        label=launch.label,
        name=NAME,
        env="\n".join(env),
        traced=TRACED,
        server=shlex.join(pinned),
        url=launch.url,
        ready_within_s=round(launch.ready_within_s),
        load=shlex.join(load),
    )
