"""Locust as its manual shows it: one POST after another, no waiting, no checks.

The target comes in environment variables: ``STOCK_URL``, ``STOCK_HEADERS`` (JSON) and
``STOCK_BODY`` (a file).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from locust import FastHttpUser, HttpUser, constant, task

URL = os.environ["STOCK_URL"]
HEADERS = json.loads(os.environ["STOCK_HEADERS"])
BODY = Path(os.environ["STOCK_BODY"]).read_bytes()


class StockHttpUser(HttpUser):
    host = URL
    wait_time = constant(0)

    @task
    def infer(self) -> None:
        self.client.post(URL, data=BODY, headers=HEADERS)


class StockFastHttpUser(FastHttpUser):
    host = URL
    wait_time = constant(0)

    @task
    def infer(self) -> None:
        self.client.post(URL, data=BODY, headers=HEADERS)
