"""What a stranger, a careless client or a hostile one can reach: limits, names, memory, secrets."""

from __future__ import annotations

import gzip
import json
import os
import re
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from serving.backends.base import ServePlan
from serving.backends.onnxruntime.launch import BACKEND
from serving.backends.onnxruntime.settings import TOKEN_VARIABLE, Limits
from serving.models.repository import Model
from serving.process import RunningProcess, free_port, wait_until
from serving.protocol import Array
from serving.session import Session, open_session
from tests.grpc_calls import Stub, code_of, infer_message, stub_of
from tests.http_wire import chunked, request
from tests.memory import PeakMemory
from tests.raw_http import exchange, infer_request
from tests.sample_models import write_echo, write_tiny
from tests.server_process import Server, serve

LIMITS = {
    "head": 2_000,
    "headers": 20,
    "body": 100_000,
    "json": 50_000,
    "decompressed": 60_000,
    "elements": 400,
    "grpc-message": 100_000,
}
INFER = "/v2/models/tiny/infer"
BOMB_BYTES = 1 << 27
MEMORY_BOUND = 40 << 20


def rows(count: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((count, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Beside ``echo``; outside their repository lies another model, which nobody may reach."""
    folder = tmp_path_factory.mktemp("models")
    write_tiny(folder).folder.rename(folder / "secret")
    repository = folder / "repository"
    write_echo(repository)
    repository.joinpath("outside").symlink_to(folder, target_is_directory=True)
    return write_tiny(repository)


@pytest.fixture(scope="module")
def session(tiny: Model) -> Session:
    return open_session(tiny)


@pytest.fixture(scope="module")
def server(tiny: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = [f"--{name}-limit={value}" for name, value in LIMITS.items()]
    with serve(tiny, tmp_path_factory.mktemp("server"), "--model", "echo", *flags) as running:
        yield running


def expect_right(server: Server, session: Session) -> None:
    status, answer = server.infer(rows(2))
    assert status == 200, answer
    np.testing.assert_allclose(answer, session.run({"x": rows(2)})["y"], atol=1e-6)


def test_it_listens_to_this_machine_only_and_prints_its_limits(tiny: Model, tmp_path: Path) -> None:
    """Started without the flags that say where."""
    argv = [part for part in BACKEND.launch(plan_of(tiny, tmp_path)).argv if part != "127.0.0.1"]
    argv.remove("--host")
    port = int(argv[argv.index("--port") + 1])
    with RunningProcess(argv, log=tmp_path / "log") as process:
        found = Server(f"http://127.0.0.1:{port}", "", process)
        wait_until(found.ready, deadline_s=30, process=process, what="server", poll_s=0.02)
        listening = [one.laddr for one in found.worker.net_connections() if one.status == "LISTEN"]
        assert len(listening) == 2
        assert {address.ip for address in listening} == {"127.0.0.1"}
        (line,) = re.findall("^limits: (.*)$", process.log_tail(50), re.MULTILINE)
        assert line == ", ".join(f"{name} {value}" for name, value in asdict(Limits()).items())


def plan_of(model: Model, folder: Path, host: str = "127.0.0.1") -> ServePlan:
    return ServePlan("onnxruntime", "", model, (), free_port(), folder, host)


def compressed(encoding: str, content: bytes) -> bytes:
    pack = {"gzip": gzip.compress, "deflate": zlib.compress}[encoding]
    return request("POST", INFER, pack(content), f"Content-Encoding: {encoding}")


BEYOND = {
    "head": (request("GET", "/v2", b"", "X: " + "x" * LIMITS["head"]), 431),
    "headers": (request("GET", "/v2", b"", *["X: x"] * LIMITS["headers"]), 431),
    "body": (request("POST", INFER, b" " * (LIMITS["body"] + 1)), 413),
    "body in chunks": (chunked(INFER, [b" " * 1000] * (LIMITS["body"] // 1000 + 1)), 413),
    "length of 2 GiB": (request("POST", INFER, b"", f"Content-Length: {1 << 31}"), 413),
    "length of 16 EiB": (request("POST", INFER, b"", f"Content-Length: {(1 << 64) - 1}"), 413),
    "JSON": (request("POST", INFER, b" " * (LIMITS["json"] + 1)), 413),
    "gzip": (compressed("gzip", b" " * (LIMITS["decompressed"] + 1)), 413),
    "deflate": (compressed("deflate", b" " * (LIMITS["decompressed"] + 1)), 413),
    "elements": (infer_request(rows(7)), 413),
}


@pytest.mark.parametrize("name", BEYOND)
def test_each_limit_refuses_with_its_status_and_its_number(
    server: Server, session: Session, name: str
) -> None:
    data, status = BEYOND[name]
    (answer,) = exchange(server, data.replace(b"Host: h\r\n", b"Host: h\r\nConnection: close\r\n"))
    assert answer.status == status
    assert any(str(limit) in json.loads(answer.body)["error"] for limit in LIMITS.values())
    expect_right(server, session)


def test_binary_data_may_be_larger_than_json(server: Server) -> None:
    values = np.ones(LIMITS["elements"], np.float32)
    assert server.infer(values, model="echo")[0] == 200
    padded = b"{" + b" " * LIMITS["json"] + infer_request(rows(1)).partition(b"\r\n\r\n{")[2]
    assert server.send("POST", INFER, padded)[0] == 413


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_bomb_does_not_go_off(server: Server, session: Session, encoding: str) -> None:
    stream = zlib.compressobj(9, wbits=31 if encoding == "gzip" else 15)
    body = b"".join(stream.compress(bytes(1 << 20)) for _ in range(BOMB_BYTES >> 20))
    bomb = (body + stream.flush())[: LIMITS["body"]]
    with PeakMemory(server.worker.pid) as peak:
        for path in (INFER, "/v2/repository/index"):
            status, told, _ = server.send("POST", path, bomb, {"Content-Encoding": encoding})
            assert status == 413, told
    assert peak.growth_bytes < MEMORY_BOUND
    expect_right(server, session)


def test_grpc_messages_have_a_limit(server: Server) -> None:
    large = infer_message(np.zeros((1, LIMITS["grpc-message"]), np.float32))
    with stub_of(server.grpc_url) as stub:
        for packed in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
            code = code_of(stub.ModelInfer, large, compression=packed)
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert code_of(stub.ModelInfer, infer_message(rows(1))) is grpc.StatusCode.OK


def test_a_grpc_client_sees_large_replies_only_if_it_asks_for_them(
    tiny: Model, tmp_path: Path
) -> None:
    """6.4 MB each way with the server's own limits: the default client takes in 4 MiB."""
    message = infer_message(np.zeros(1_600_000, np.float32), "echo")
    with serve(tiny, tmp_path, "--model", "echo") as server:
        with stub_of(server.grpc_url) as stub:
            assert code_of(stub.ModelInfer, message) is grpc.StatusCode.RESOURCE_EXHAUSTED
        with stub_of(server.grpc_url, ("grpc.max_receive_message_length", 1 << 24)) as stub:
            assert code_of(stub.ModelInfer, message) is grpc.StatusCode.OK


def test_other_machines_cannot_fill_the_memory_over_grpc(tiny: Model, tmp_path: Path) -> None:
    """Not even for a moment: neither with a large message nor with one that unpacks to one."""
    large = bytes(BOMB_BYTES)
    flags = ("--host", "0.0.0.0", f"--grpc-message-limit={LIMITS['grpc-message']}")
    with (
        serve(tiny, tmp_path, *flags) as server,
        grpc.insecure_channel(
            server.grpc_url.removeprefix("grpc://"), [("grpc.max_send_message_length", -1)]
        ) as channel,
    ):
        send = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with PeakMemory(server.worker.pid) as peak:
            for packed in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
                code = code_of(send, large, compression=packed)
                assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert peak.growth_bytes < MEMORY_BOUND


NAMES = (
    *("..", ".", "../secret", "tiny/../../secret", "./tiny", "tiny/", "/tiny", "outside/secret"),
    *(
        "secret",
        "tiny\0",
        "tiny\0/../secret",
        "../repository/tiny",
        "tiny/1",
        "*",
        "TINY",
        "ti\nny",
    ),
)


def http_spellings(name: str) -> Iterator[str]:
    """Plain where a path may hold it, and with everything encoded."""
    yield quote(name, safe="/.")
    yield "".join(f"%{byte:02x}" for byte in name.encode())
    yield quote(name, safe="").replace("%2F", "%2f")


@pytest.mark.parametrize("name", NAMES)
def test_names_do_not_lead_out_of_the_repository(
    server: Server, session: Session, tiny: Model, name: str
) -> None:
    absolute = str(tiny.root.parent / "secret")
    for spelling in [*http_spellings(name), quote(absolute, safe="")]:
        for method, path in [
            ("GET", f"/v2/models/{spelling}"),
            ("GET", f"/v2/models/{spelling}/config"),
            ("GET", f"/v2/models/{spelling}/versions/1/config"),
            ("POST", f"/v2/models/{spelling}/infer"),
            ("POST", f"/v2/repository/models/{spelling}/load"),
            ("POST", f"/v2/repository/models/{spelling}/unload"),
            ("GET", f"/v2/models/tiny/versions/{spelling}/config"),
            ("POST", f"/v2/models/tiny/versions/{spelling}/infer"),
        ]:
            status, body, _ = server.send(method, path, b"{}" if method == "POST" else b"")
            assert status in (400, 404, 405), (path, body)
    with stub_of(server.grpc_url) as stub:
        for name_or_path in (name, absolute):
            for call, message in [
                (stub.ModelConfig, pb.ModelConfigRequest(name=name_or_path)),
                (stub.ModelConfig, pb.ModelConfigRequest(name="tiny", version=name_or_path)),
                (stub.ModelInfer, pb.ModelInferRequest(model_name=name_or_path)),
                (stub.RepositoryModelLoad, pb.RepositoryModelLoadRequest(model_name=name_or_path)),
            ]:
                assert code_of(call, message) is grpc.StatusCode.NOT_FOUND
    expect_right(server, session)


@pytest.mark.parametrize(
    "version", ["0", "01", "+1", "-1", " 1", "1 ", "1.0", "1e0", "\u0661", "2"]
)
def test_versions_are_what_they_are_called(server: Server, version: str) -> None:
    assert server.send("GET", f"/v2/models/tiny/versions/{quote(version)}")[0] == 404


@pytest.fixture
def shared() -> Iterator[Path]:
    """An object in shared memory that holds two rows."""
    path = Path("/dev/shm") / f"infersweep-{secrets.token_hex(8)}"
    path.write_bytes(rows(2).tobytes())
    yield path
    path.unlink(missing_ok=True)


def register(server: Server, key: str, size: int, offset: int = 0) -> int:
    server.send("POST", "/v2/systemsharedmemory/unregister")
    body = json.dumps({"key": key, "byte_size": size, "offset": offset}).encode()
    return server.send("POST", "/v2/systemsharedmemory/region/r/register", body)[0]


def infer_shared(server: Server, size: int, *, output: bool = False) -> int:
    """A row from the region, or its answer into it."""
    place = {"shared_memory_region": "r", "shared_memory_byte_size": size}
    row: dict[str, object] = {"name": "x", "datatype": "FP32", "shape": [1, 64]}
    row |= {"data": [0.5] * 64} if output else {"parameters": place}
    asked = {"inputs": [row], "outputs": [{"name": "y", "parameters": place if output else {}}]}
    return server.send("POST", INFER, json.dumps(asked).encode())[0]


def test_keys_do_not_lead_out_of_shared_memory(
    server: Server, session: Session, shared: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(bytes(1000))
    shared.unlink()
    shared.symlink_to(outside)
    for key in (
        *("", "/", ".", "..", "../etc/hostname", "/../etc/hostname", "//etc/hostname", "a/b"),
        *(str(outside), "\0", f"{shared.name}\0", "x" * 251, "ä" * 200, shared.name),
    ):
        assert register(server, key, 10) == 400, key
    shared.unlink()
    os.mkfifo(shared)
    assert register(server, shared.name, 0) == 400
    shared.unlink()
    shared.mkdir()
    assert register(server, shared.name, 0) == 400
    shared.rmdir()
    assert outside.read_bytes() == bytes(1000)
    expect_right(server, session)


def test_a_region_that_was_shortened_is_the_clients_fault(
    server: Server, session: Session, shared: Path
) -> None:
    """A mapping of it would end the server with SIGBUS."""
    assert register(server, shared.name, 512) == 200
    assert infer_shared(server, 256) == 200
    os.truncate(shared, 30)
    assert infer_shared(server, 256) == 400
    assert infer_shared(server, 256, output=True) == 400
    shared.unlink()
    assert infer_shared(server, 256) == 400
    expect_right(server, session)


def test_a_huge_region_does_not_fill_the_memory(server: Server, shared: Path) -> None:
    """It takes no memory itself: nothing has been written to it."""
    os.truncate(shared, 1 << 34)
    with PeakMemory(server.worker.pid) as peak:
        assert register(server, shared.name, 1 << 34) == 200
        assert infer_shared(server, 1 << 33) == 413
        assert infer_shared(server, 256) == 200
    assert peak.growth_bytes < MEMORY_BOUND


@contextmanager
def with_token(token: str) -> Iterator[None]:
    os.environ[TOKEN_VARIABLE] = token
    try:
        yield
    finally:
        del os.environ[TOKEN_VARIABLE]


def test_only_who_has_the_token_is_served(tiny: Model, tmp_path: Path) -> None:
    right, wrong = {"Authorization": "Bearer gate-7"}, {"Authorization": "Bearer gate"}
    with with_token("gate-7"), serve(tiny, tmp_path) as server:
        for method, path in [("GET", "/v2"), ("GET", "/metrics"), ("POST", INFER)]:
            for headers in ({}, wrong, {"Authorization": "gate-7"}):
                status, _, told = server.send(method, path, b"", headers)
                assert (status, told["www-authenticate"]) == (401, "Bearer")
            assert server.send(method, path, b"", right)[0] in (200, 400)
        assert server.send("GET", "/v2/health/live")[0] == 200
        with stub_of(server.grpc_url) as stub:
            assert_gate(stub, "Bearer gate-7")
        assert "gate-7" not in " ".join(server.worker.cmdline())
        assert "gate-7" not in server.process.log_tail(100)


def assert_gate(stub: Stub, right: str) -> None:
    denied = grpc.StatusCode.UNAUTHENTICATED
    for told in (None, [("authorization", "Bearer gate")], [("authorization", "x")]):
        for call, message in [
            (stub.ModelInfer, infer_message(rows(1))),
            (stub.ServerMetadata, pb.ServerMetadataRequest()),
            (stub.RepositoryModelUnload, pb.RepositoryModelUnloadRequest(model_name="tiny")),
        ]:
            assert code_of(call, message, metadata=told) is denied
        with pytest.raises(grpc.RpcError) as caught:
            list(stub.ModelStreamInfer(iter([infer_message(rows(1))]), metadata=told, timeout=20))
        assert caught.value.code() is denied
    assert stub.ServerLive(pb.ServerLiveRequest()).live
    metadata = [("authorization", right)]
    assert code_of(stub.ModelInfer, infer_message(rows(1)), metadata=metadata) is grpc.StatusCode.OK
    (reply,) = stub.ModelStreamInfer(iter([infer_message(rows(1))]), metadata=metadata, timeout=20)
    assert reply.infer_response.model_name == "tiny"


def test_a_token_that_is_empty_ends_the_start(tiny: Model, tmp_path: Path) -> None:
    with (
        with_token(" "),
        RunningProcess(
            BACKEND.launch(plan_of(tiny, tmp_path)).argv, log=tmp_path / "log"
        ) as process,
    ):
        assert process.wait(20) == 2
        assert TOKEN_VARIABLE in process.log_tail()
