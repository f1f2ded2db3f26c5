"""Before any load: is there a v2 server, has it the model, and does a request fit?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from tritonclient.utils import InferenceServerException

from serving.errors import ModelError, ServerError
from serving.models.repository import Model
from serving.readiness import OPEN, Access, client_for


def check_server(url: str, model: Model, access: Access = OPEN) -> None:
    """Return when ``model``'s requests fit what the server at ``url`` says of itself.

    Raises:
        ServerError: nothing answers there, or something that is no v2 server.
        ModelError: it has no such model, or one with other inputs.
    """
    client = client_for(url, access)
    headers = dict(access.headers) or None
    try:
        if not client.is_server_live(headers=headers):
            raise _no_server(url, "it does not say that it is live at /v2/health/live")
        metadata = client.get_model_metadata(model.name, headers=headers)
    except InferenceServerException as error:
        raise _refusal(url, model, error) from None
    except OSError as error:
        raise _no_server(url, str(error) or type(error).__name__) from None
    except ValueError:
        raise _no_server(url, "its model metadata is no JSON") from None
    finally:
        client.close()
    told = MessageToDict(metadata) if isinstance(metadata, Message) else metadata
    _compare(url, model, told)


def _no_server(url: str, why: str) -> ServerError:
    return ServerError(
        f"there is no v2 server at {url}: {why}",
        hint="Is the address right, and does the server speak the Open Inference Protocol v2?",
    )


def _refusal(url: str, model: Model, error: InferenceServerException) -> Exception:
    status = str(error.status() or "")
    if "UNAVAILABLE" in status or "DEADLINE" in status:
        return _no_server(url, error.message())
    return ModelError(
        f"the server at {url} has no model {model.name!r}: {error.message()}",
        hint="Name one that it serves with --model.",
    )


def _compare(url: str, model: Model, metadata: Mapping[str, Any]) -> None:
    theirs = {str(item["name"]): item for item in metadata.get("inputs", ())}
    for spec in model.config.inputs:
        shape = model.config.wire_dims(spec)
        item = theirs.get(spec.name)
        found = "nothing" if item is None else f"{item['datatype']} {_dims(item)}"
        if item is None or item["datatype"] != spec.datatype or not _fits(_dims(item), shape):
            raise ModelError(
                f"model {model.name!r} at {url} takes {found} as input {spec.name!r}, not "
                f"{spec.datatype} {list(shape)}",
                hint="Give the repository that this server serves with --repository.",
            )
    for name in theirs.keys() - {spec.name for spec in model.config.inputs}:
        raise ModelError(
            f"model {model.name!r} at {url} also needs input {name!r}",
            hint="Give the repository that this server serves with --repository.",
        )


def _dims(item: Mapping[str, Any]) -> list[int]:
    return [int(n) for n in item.get("shape", ())]


def _fits(theirs: Sequence[int], ours: Sequence[int]) -> bool:
    """Axes of -1 fit any length."""
    return len(theirs) == len(ours) and all(
        -1 in (a, b) or a == b for a, b in zip(theirs, ours, strict=True)
    )
