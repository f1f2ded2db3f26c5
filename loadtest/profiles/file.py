"""Profiles as files: written whole, refused with one line where nothing can be planned from one."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from loadtest.exporting.files import write_text
from loadtest.profiles.record import PROFILE_VERSION, Profile
from serving.errors import ResultsError

NAME = "profile.json"


def write_profile(profile: Profile, path: Path) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, profile.model_dump_json() + "\n")


def read_profile(path: Path) -> Profile:
    """The profile in a file, or in a results folder.

    Raises:
        ResultsError: there is none, it is damaged, or a newer infersweep wrote it.
    """
    path = path / NAME if path.is_dir() else path
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(
            f"profile {path} cannot be read: {error}",
            hint="`infersweep profile` measures one.",
        ) from None
    found = content.get("profile_version") if isinstance(content, dict) else None
    if isinstance(found, int) and found > PROFILE_VERSION:
        raise ResultsError(
            f"{path} is a profile of version {found}, and this infersweep reads {PROFILE_VERSION}",
            hint="Update infersweep.",
        )
    try:
        return Profile.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ResultsError(
            f"{path} is no profile: {where}: {first['msg']}", hint="Measure it again."
        ) from None


def require_plannable(profile: Profile, path: Path) -> None:
    """Raises ResultsError for a profile that no plan may rest on."""
    if profile.verdict == "INVALID":
        raise ResultsError(
            f"profile {path} is INVALID: {'; '.join(profile.reasons)}", hint="Measure it again."
        )
    if profile.servers is None:
        raise ResultsError(
            f"profile {path} is of an unknown number of servers behind {profile.backend}",
            hint="Measure it again with --servers N.",
        )
    if profile.servers != 1:
        raise ResultsError(
            f"profile {path} is of {profile.servers} servers together, which tells nothing of one",
            hint="Measure one of them.",
        )


def require_same_model(profiles: list[tuple[Path, Profile]], sha256: str | None = None) -> None:
    """All of one model file; of ``sha256`` where the model itself is at hand.

    Raises:
        ResultsError: two are of different models or versions, or of another than is served now.
    """
    first_path, first = profiles[0]
    for path, profile in profiles[1:]:
        if profile.model_sha256 != first.model_sha256:
            raise ResultsError(
                f"profiles {first_path} and {path} are of different model files "
                f"({first.model} {first.model_sha256[:12]}, {profile.model} "
                f"{profile.model_sha256[:12]})",
                hint="Measure both with the same model.",
            )
    if sha256 is not None and sha256 != first.model_sha256:
        raise ResultsError(
            f"profile {first_path} is of another version of model {first.model!r} "
            f"({first.model_sha256[:12]}, here {sha256[:12]})",
            hint="Measure the profile again.",
        )
