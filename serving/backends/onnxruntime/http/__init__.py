"""HTTP/1.1 for the server: uvloop moves the bytes, llhttp (httptools) reads the heads.

What repeats from request to request is read once: a connection's heads are equal but for rare
exceptions, so a parsed head is remembered under its bytes.
"""

from __future__ import annotations

from serving.backends.onnxruntime.http.connection import Connection, Handler
from serving.backends.onnxruntime.http.head import Head, HeadError, HeadParser
from serving.backends.onnxruntime.http.reply import Reply, fault, json_reply
from serving.backends.onnxruntime.http.server import HttpServer

__all__ = [
    "Connection",
    "Handler",
    "Head",
    "HeadError",
    "HeadParser",
    "HttpServer",
    "Reply",
    "fault",
    "json_reply",
]
