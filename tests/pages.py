"""Pages as tests read them, and texts that would harm one that does not escape."""

from __future__ import annotations

import re
from collections.abc import Container
from html import unescape
from typing import Any

NASTY = '</script><img src=x onerror="alert(1)"><b>bold</b>&amp;|`@team`'


def text_of(page: str) -> str:
    """What is read, without scripts and tags."""
    bare = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", bare)).split())


def spoiled(value: Any, kept: Container[str]) -> Any:
    """``value`` of JSON where every text but those ``kept`` does its worst."""
    if isinstance(value, dict):
        return {name: spoiled(one, kept) for name, one in value.items()}
    if isinstance(value, list):
        return [spoiled(one, kept) for one in value]
    return f"{value}{NASTY}" if isinstance(value, str) and value not in kept else value
