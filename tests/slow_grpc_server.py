"""A gRPC server that answers every inference with the same bytes after a while.

Run as ``python -m tests.slow_grpc_server REPLY SECONDS``; prints its port.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc


class Inference(grpc.GenericRpcHandler):
    def __init__(self, reply: bytes, seconds: float) -> None:
        self._reply = reply
        self._seconds = seconds

    def service(self, _details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(self._infer)

    def _infer(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:
        time.sleep(self._seconds)
        return self._reply


def main() -> None:
    server = grpc.server(ThreadPoolExecutor(64))
    handler = Inference(Path(sys.argv[1]).read_bytes(), float(sys.argv[2]))
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)  # noqa: T201
    server.wait_for_termination()


if __name__ == "__main__":
    main()
