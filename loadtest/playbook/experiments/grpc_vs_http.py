"""The same requests over gRPC and over HTTP.

Asked by a client in full and not by the load generator: its gRPC engine, in Python, takes more CPU
time than our server, so that it would be measured in the server's place.
"""

from __future__ import annotations

from loadtest.playbook.called import Called
from loadtest.playbook.clients import GRPC_WHAT, WHAT, client_calls, grpc_calls
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.served import Served


def _arms(_lab: Lab) -> tuple[Called, ...]:
    over_http = Served("server of HTTP", "the server")
    over_grpc = Served("server of gRPC", "the server", load={"encoding": "grpc"})
    return (
        Called("HTTP", f"HTTP/1.1: {WHAT}", client_calls, against=over_http),
        Called("gRPC", f"gRPC: {GRPC_WHAT}", grpc_calls, against=over_grpc),
    )


EXPERIMENT = Experiment(
    name="grpc-vs-http",
    title="gRPC instead of HTTP",
    claim="gRPC is faster than HTTP.",
    usual=(1.5, 3.0),
    page="onnxruntime-server.md",
    arms=_arms,
)
