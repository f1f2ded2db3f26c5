"""TLS on both protocols, with a certificate made for the occasion."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import pytest
import requests

from serving.backends.base import ServePlan
from serving.backends.onnxruntime.launch import BACKEND
from serving.models.repository import Model
from serving.process import RunningProcess, free_port, wait_until
from serving.protocol import HEADER_LENGTH, Array, Tensor, decode_response, encode_request
from tests.grpc_calls import Stub, code_of, infer_message, stub_of
from tests.http_wire import request
from tests.raw_http import receive_all
from tests.sample_models import write_echo, write_tiny

STALL_S = 1


@dataclass(frozen=True)
class Certificate:
    file: Path
    key: Path


@dataclass(frozen=True)
class Secured:
    url: str
    grpc_url: str
    certificate: Certificate

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.url.removeprefix("https://").split(":")
        return host, int(port)

    def echo(self, session: requests.Session, array: Array) -> Array:
        body, length = encode_request([Tensor.of("x", array)])
        reply = session.post(
            f"{self.url}/v2/models/echo/infer",
            data=body,
            headers={HEADER_LENGTH: str(length)},
            verify=str(self.certificate.file),
            timeout=20,
        )
        assert reply.status_code == 200, reply.text
        told = int(reply.headers[HEADER_LENGTH.lower()])
        return decode_response(reply.content, told)["y"].array


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("certificate")
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj", "/CN=test"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(made.key), "-out", str(made.file)),
        ],
        check=True,
        capture_output=True,
    )
    return made


def argv_of(model: Model, folder: Path, *flags: str) -> tuple[str, ...]:
    plan = ServePlan("onnxruntime", "", model, (), free_port(), folder)
    return (*BACKEND.launch(plan).argv, *flags)


@pytest.fixture(scope="module")
def secured(
    certificate: Certificate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    write_echo(folder)
    argv = argv_of(
        write_tiny(folder),
        folder,
        *("--model", "echo", "--stall-limit", str(STALL_S)),
        *("--tls-certificate", str(certificate.file), "--tls-key", str(certificate.key)),
    )
    port, grpc_port = (argv[argv.index(flag) + 1] for flag in ("--port", "--grpc-port"))
    url = f"https://127.0.0.1:{port}"

    def ready() -> bool:
        try:
            path = f"{url}/v2/health/ready"
            return requests.get(path, verify=str(certificate.file), timeout=5).status_code == 200
        except requests.ConnectionError:
            return False

    with RunningProcess(argv, log=folder / "log") as process:
        wait_until(ready, deadline_s=30, process=process, what="server", poll_s=0.05)
        yield Secured(url, f"grpc://127.0.0.1:{grpc_port}", certificate)
        report = process.stop()
        assert (report.returncode, report.killed) == (0, False)
        assert "Traceback" not in process.log_tail(1000)


@pytest.mark.parametrize("count", [0, 1, 1000, 20_000, 3_000_000])
def test_frames_of_any_size_come_back_as_they_went(secured: Secured, count: int) -> None:
    """Twice on one connection: smaller than what is read at once, and much larger."""
    with requests.Session() as session:
        for seed in range(2):
            array = np.random.default_rng(seed).standard_normal(count).astype(np.float32)
            np.testing.assert_array_equal(secured.echo(session, array), array)


def test_grpc_needs_tls_too(secured: Secured) -> None:
    message = infer_message(np.zeros((1, 64), np.float32))
    trusted = grpc.ssl_channel_credentials(secured.certificate.file.read_bytes())
    with grpc.secure_channel(secured.grpc_url.removeprefix("grpc://"), trusted) as channel:
        stub = Stub(channel)
        for packed in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
            assert code_of(stub.ModelInfer, message, compression=packed) is grpc.StatusCode.OK
    with stub_of(secured.grpc_url) as plain:
        assert code_of(plain.ModelInfer, message) is grpc.StatusCode.UNAVAILABLE


def test_plain_text_gets_no_answer(secured: Secured) -> None:
    with socket.create_connection(secured.address, 20) as client:
        client.sendall(request("GET", "/v2/health/live"))
        assert b"HTTP/1.1" not in receive_all(client)


def test_a_client_that_never_shakes_hands_is_cut(secured: Secured) -> None:
    with socket.create_connection(secured.address, 20) as client:
        assert receive_all(client) == b""


def test_the_client_sees_who_it_talks_to(secured: Secured) -> None:
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(f"{secured.url}/v2", timeout=20)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_versions_are_not_spoken(secured: Secured) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(secured.address, 20) as client, pytest.raises(ssl.SSLError):
        old.wrap_socket(client)


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (("--tls-certificate", "{file}"), 2),
        (("--tls-key", "{key}"), 2),
        (("--tls-certificate", "{file}", "--tls-key", "{file}"), 3),
        (("--tls-certificate", "/nowhere", "--tls-key", "{key}"), 3),
    ],
)
def test_half_a_certificate_ends_the_start(
    certificate: Certificate, tiny: Model, tmp_path: Path, flags: tuple[str, ...], code: int
) -> None:
    filled = [flag.format(file=certificate.file, key=certificate.key) for flag in flags]
    with RunningProcess(argv_of(tiny, tmp_path, *filled), log=tmp_path / "log") as process:
        assert process.wait(20) == code
        assert "Traceback" not in process.log_tail(50)
