"""The linter against Triton itself: what it calls an error, Triton refuses, and nothing else."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import tritonclient.http
from tritonclient.utils import InferenceServerException

from serving.deployment import fetch_needed
from serving.models.repository import Model
from tests.broken_configs import BROKEN, write_all
from tests.contract.served import FIRST_MODEL, serving


def test_triton_refuses_what_the_linter_calls_an_error(tiny: Model, tmp_path: Path) -> None:
    fetch_needed(["triton"], print)
    write_all(tmp_path / "broken")
    with serving("triton", {FIRST_MODEL: tiny}, tmp_path) as served:
        address = urlsplit(served.server_of(FIRST_MODEL).url).netloc
        shutil.copytree(tmp_path / "broken", tmp_path / "repository", dirs_exist_ok=True)
        with closing(tritonclient.http.InferenceServerClient(address)) as client:

            def loads(name: str) -> bool:
                try:
                    client.load_model(name)
                except InferenceServerException:
                    return False
                return True

            assert all([loads("first"), loads("second"), loads("chain")])
            wrong = {case.name: case.loads for case in BROKEN if loads(case.name) != case.loads}
    assert not wrong
