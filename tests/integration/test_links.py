"""A real relay on loopback: its delay and rates, the order of bytes, ends and resets."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loadtest.links.check import compare, measure
from loadtest.links.peer import ASKED, ECHO, SOURCE, Peer, take, whole
from loadtest.links.profile import link_profile
from loadtest.links.running import running_link
from serving.errors import ServerError
from serving.process import free_port

FAST = "one_way_delay_ms = 8\njitter_ms = 1\nuplink_bps = 40e6\ndownlink_bps = 80e6\n"
ROUGH = (
    "one_way_delay_ms = 2\njitter_ms = 2\nloss_share = 0.02\nstall_ms = 5\n"
    "uplink_bps = 60e6\ndownlink_bps = 60e6\noutages = { periods_s = [[0.1, 0.05], [0.3, 0.05]] }\n"
)
TRIES = 4


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with Peer() as far_end:
        yield far_end


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "link.toml"
    file.write_text(text)
    return str(file)


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


@pytest.mark.parametrize("given", ["lte", FAST], ids=["lte", "fast"])
def test_a_relay_has_the_delay_and_the_rates_of_its_profile(
    given: str, peer: Peer, tmp_path: Path
) -> None:
    link = given if "=" not in given else written(tmp_path, given)
    profile = link_profile(link)
    with running_link(link, peer.address, log=tmp_path / "log") as address:
        for _ in range(TRIES):
            seen = measure(profile, address, pings=15, transfer_s=0.15)
            found = compare(profile, seen)
            if all(each.holds for each in found):
                return
    pytest.fail("\n".join(map(str, found)))


def test_bytes_come_whole_and_in_order_through_jitter_losses_and_outages(
    peer: Peer, tmp_path: Path
) -> None:
    sent = random.Random(1).randbytes(400_000)
    header = ASKED.pack(ECHO, len(sent))
    link = written(tmp_path, ROUGH)
    with (
        running_link(link, peer.address, log=tmp_path / "log") as address,
        connected(address) as connection,
    ):
        connection.sendall(header + sent)
        back = whole(connection, len(header) + len(sent))
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    assert back == header + sent


def test_connections_share_one_bottleneck(peer: Peer, tmp_path: Path) -> None:
    """Two downloads at once have its rate together, behind a handshake and a request."""
    link = written(tmp_path, FAST)
    count, counted = 750_000, []

    def download(address: str) -> None:
        with connected(address) as connection:
            connection.sendall(ASKED.pack(SOURCE, count))
            take(connection, count)
            counted.append(time.monotonic())

    with running_link(link, peer.address, log=tmp_path / "log") as address:
        began = time.monotonic()
        threads = [threading.Thread(target=download, args=(address,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # A busy machine makes it longer, never shorter; a round trip takes 14 ms or more.
    assert max(counted) - began >= 2 * 0.014 + 2 * count * 8 / 80e6


def test_a_server_that_resets_or_is_gone_harms_no_other_connection(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        link = written(tmp_path, FAST)
        with running_link(link, f"{host}:{port}", log=tmp_path / "log") as address:
            with connected(address) as hurt:
                accepted, _ = server.accept()
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                accepted.close()
                with pytest.raises(ConnectionResetError):
                    hurt.recv(1)
            with connected(address) as other:
                accepted, _ = server.accept()
                with accepted:
                    accepted.sendall(b"hello")
                    assert whole(other, 5) == b"hello"
            server.close()
            with connected(address) as refused, pytest.raises(ConnectionResetError):
                refused.recv(1)
    assert "no connection to" in (tmp_path / "log").read_text()


def test_a_relay_that_cannot_start_says_why(tmp_path: Path) -> None:
    link = written(tmp_path, FAST.replace("40e6", "0"))
    server = f"127.0.0.1:{free_port()}"
    with (
        pytest.raises(ServerError, match="uplink_bps is 0, and must be above 0"),
        running_link(link, server, log=tmp_path / "log"),
    ):
        pass
