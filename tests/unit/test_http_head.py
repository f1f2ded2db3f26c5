"""Heads: what is served, what is refused, and that nobody else would read them otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.backends.onnxruntime.http import Head, HeadError, HeadParser, Reply
from serving.backends.onnxruntime.routes import Route, find_route
from serving.protocol import HEADER_LENGTH

HOST = b"Host: h\r\n"


def parse(head: bytes, token: str = "") -> Head:
    def path_of(method: str, path: Sequence[str], authorized: bool) -> tuple[Sequence[str], bool]:
        return path, authorized

    return HeadParser(path_of, 100, token).parse(head)


def with_fields(*lines: bytes, method: bytes = b"POST", version: bytes = b"1.1") -> bytes:
    start = b"%s /v2 HTTP/%s\r\n" % (method, version)
    return start + HOST + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def refusal(head: bytes) -> int:
    with pytest.raises(HeadError) as caught:
        parse(head)
    return caught.value.status


@pytest.mark.parametrize(
    "lines",
    [
        (b"Content-Length: 5", b"Transfer-Encoding: chunked"),
        (b"Transfer-Encoding: chunked", b"Content-Length: 5"),
        (b"Content-Length: 5", b"Content-Length: 5"),
        (b"Content-Length: 5, 5",),
        (b"Content-Length: +5",),
        (b"Content-Length: -5",),
        (b"Content-Length: 0x5",),
        (b"Content-Length: 1_0",),
        (b"Content-Length: 5 5",),
        (b"Content-Length:",),
        (b"Content-Length: 99999999999999999999999",),
        (b"Content-Length : 5",),
        (b"Content-Length\t: 5",),
        (b"Content-Length: 5\n",),
        (b" Content-Length: 5",),
        (b"X: a\r\n b",),
        (b"Content-Length:\r\n 5",),
        (b"X: a\nContent-Length: 5",),
        (b"X: a\rContent-Length: 5",),
        (b"X: a\0b",),
        (b"X\0: a",),
        (b"X",),
        (b": a",),
        (b"Transfer-Encoding: chunked, identity",),
        (b"Transfer-Encoding: chunked, chunked",),
        (b"Transfer-Encoding: xchunked",),
        (b"Transfer-Encoding: \x0bchunked",),
        (b"Transfer-Encoding:",),
        (b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked"),
        (b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"),
        (b"Host: other",),
        (b"Authorization: Bearer a", b"Authorization: Bearer b"),
        (f"{HEADER_LENGTH}: 1".encode(), f"{HEADER_LENGTH}: 2".encode()),
        (b"Content-Encoding: gzip", b"Content-Encoding: deflate"),
        (b"traceparent: a", b"Traceparent: b"),
    ],
)
def test_what_two_servers_could_read_differently_is_refused(lines: tuple[bytes, ...]) -> None:
    assert refusal(with_fields(*lines)) == 400


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"\r\n\r\n", 400),
        (b"GET /v2\r\n\r\n", 400),
        (b"GET  /v2 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET\t/v2 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET /v2 x HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET /v2 HTTP/1.1\n" + HOST + b"\r\n", 400),
        (b"\nGET /v2 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"\r\n\r\nGET /v2 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"get /v2 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"NONSENSE /v2 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET /v2 RTSP/1.0\r\n" + HOST + b"\r\n", 400),
        (b"GET /v2 HTTP/0.9\r\n\r\n", 505),
        (b"GET /v2 HTTP/1.2\r\n" + HOST + b"\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\n", 505),
        (b"GET /v2\xff HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET /v2/%ff HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"CONNECT h:80 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET /v2 HTTP/1.1\r\n\r\n", 400),
        (with_fields(b"Transfer-Encoding: gzip, chunked"), 501),
        (with_fields(b"Transfer-Encoding: chunked", version=b"1.0"), 400),
        (with_fields(*[b"X: a"] * 100), 431),
    ],
)
def test_what_is_no_request_for_this_server_is_refused(head: bytes, status: int) -> None:
    assert refusal(head) == status


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        (b"/v2", ["", "v2"]),
        (b"/v2?a=/../b#c", ["", "v2"]),
        (b"http://h:80/v2?x=1", ["", "v2"]),
        (b"http://h", ["", ""]),
        (b"//h/v2", ["", "", "h", "v2"]),
        (b"/v2/models/a%2Fb/%2e%2E", ["", "v2", "models", "a/b", ".."]),
        (b"/v2/models/../x", ["", "v2", "models", "..", "x"]),
        (b"/v2/%00%C3%A4%zz%", ["", "v2", "\0ä%zz%"]),
    ],
)
def test_a_path_is_taken_apart_before_it_is_decoded(target: bytes, parts: list[str]) -> None:
    head = parse(b"GET %s HTTP/1.1\r\n%s\r\n" % (target, HOST))
    assert list(head.route[0]) == parts


def test_what_a_head_says() -> None:
    head = parse(
        with_fields(
            b"Content-Length: 007 ",
            b"content-ENCODING: GZip",
            f"{HEADER_LENGTH}: 12".encode(),
            b"Expect: 100-Continue",
            b"X-Request-Id:",
        )
    )
    assert (head.method, head.length, head.encoding, head.header_length) == ("POST", 7, "gzip", 12)
    assert head.expects
    assert head.echo == b"x-request-id: \r\n"
    plain = parse(with_fields(b"Content-Encoding: identity"))
    assert (plain.length, plain.encoding, plain.header_length) == (0, "", None)
    assert parse(with_fields(b"Transfer-Encoding: Chunked")).length is None
    assert not parse(with_fields(b"Expect: 100-continue", version=b"1.0")).expects


@pytest.mark.parametrize("method", [b"GET", b"POST"])
@pytest.mark.parametrize("length", [b"X: y", b"Content-Length: 5"])
def test_an_offer_of_another_protocol_is_left_unanswered(method: bytes, length: bytes) -> None:
    offer = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AA")
    head = parse(with_fields(*offer, length, method=method))
    assert head.keep_alive
    assert head.length == (5 if b"Length" in length else 0)


@pytest.mark.parametrize(
    ("field", "right"),
    [
        (b"Authorization: Bearer secret", True),
        (b"authorization: bearer  secret", True),
        (b"Authorization: Bearer secre", False),
        (b"Authorization: Bearer secret2", False),
        (b"Authorization: Bearer", False),
        (b"Authorization: secret", False),
        (b"Authorization: Basic secret", False),
        (b"Authorization: Bearer \xff", False),
        (b"X: y", False),
    ],
)
def test_the_token_must_come_as_bearer(field: bytes, right: bool) -> None:
    assert parse(with_fields(field), "secret").route[1] is right
    assert parse(with_fields(field)).route[1] is True


def test_equal_heads_are_read_once_and_many_are_not_kept() -> None:
    read = []
    parser = HeadParser(lambda *asked: read.append(asked), 100, "")
    heads = [with_fields(b"X: %d" % n) for n in range(2000)]
    assert parser.parse(heads[0]) is parser.parse(heads[0])
    assert len(read) == 1
    for head in heads:
        parser.parse(head)
    assert len(parser._known) <= 512


VALID = with_fields(b"Content-Length: 12", b"Connection: keep-alive", b"X-Request-Id: a b")
CHUNKED = with_fields(b"Transfer-Encoding: chunked", b"Accept: */*")
SNIPPETS = (
    *(b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b",", b";", b"\r\n ", b"\x0b", b"\xff"),
    *(b"Content-Length: 3\r\n", b"Content-Length:4\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"Transfer-Encoding: identity\r\n", b"Host: i\r\n", b"chunked", b"HTTP/1.0", b"GET /x "),
)
EDITS = st.lists(
    st.tuples(st.integers(0, 150), st.integers(0, 3), st.sampled_from(SNIPPETS)),
    min_size=1,
    max_size=4,
)


def edited(head: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """Each edit puts bytes in place of some others."""
    for at, length, snippet in edits:
        head = head[:at] + snippet + head[at + length :]
    return head[: head.find(b"\r\n\r\n") + 4] if b"\r\n\r\n" in head else head + b"\r\n\r\n"


@given(head=st.sampled_from([VALID, CHUNKED]), edits=EDITS)
@example(head=VALID, edits=[(0, 0, b"\r\n")])
def test_what_is_taken_is_taken_alike_by_another_parser(
    head: bytes, edits: list[tuple[int, int, bytes]]
) -> None:
    """h11 is the more lenient; what it refuses or frames otherwise must not pass here."""
    raw = edited(head, edits)
    try:
        ours = parse(raw)
    except HeadError:
        return
    other = h11.Connection(h11.SERVER)
    other.receive_data(raw.removeprefix(b"\r\n"))
    theirs = other.next_event()
    assert isinstance(theirs, h11.Request)
    assert theirs.method.decode() == ours.method
    fields = dict(theirs.headers)
    assert (ours.length is None) == (b"transfer-encoding" in fields)
    if ours.length is not None:
        assert ours.length == int(fields.get(b"content-length", b"0"))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_head_or_a_refusal(raw: bytes) -> None:
    with contextlib.suppress(HeadError):
        parse(raw + b"\r\n\r\n")


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [
        ("GET", "/v2/models/stats", "statistics"),
        ("GET", "/v2/models/m", "model_metadata"),
        ("HEAD", "/v2/models/m/versions/1", "model_metadata"),
        ("POST", "/v2/models/m/versions/1/infer", "infer"),
        ("POST", "/v2/systemsharedmemory/unregister", "unregister"),
    ],
)
def test_every_path_leads_to_its_own_operation(method: str, path: str, operation: str) -> None:
    found = find_route(method, path.split("/"), True)
    assert isinstance(found, Route)
    assert found.endpoint.operation == operation


def test_a_slash_in_a_name_does_not_lead_to_another_operation() -> None:
    found = find_route("POST", ["", "v2", "models", "a/versions/1", "infer"], True)
    assert isinstance(found, Route)
    assert (found.model, found.version) == ("a/versions/1", "")


def test_without_the_token_only_health_is_open() -> None:
    for path, status in [("/v2/health/ready", 0), ("/v2", 401), ("/metrics", 401), ("/x", 404)]:
        found = find_route("GET", path.split("/"), False)
        assert (found.status if isinstance(found, Reply) else 0) == status
