"""Every ``config.pbtxt`` of a repository checked before any server starts, with line numbers.

What Triton 2.51 refuses is an error here, and so is what our own servers refuse.
"""

from __future__ import annotations

from pathlib import Path

from serving.linting.document import Document, Finding
from serving.linting.ensemble import check_ensemble
from serving.linting.single import check_common, check_model
from serving.linting.syntax import read_document
from serving.models.repository import list_models

__all__ = ["Finding", "lint"]


def lint(root: Path) -> list[Finding]:
    """What is wrong with the models at ``root``, by file and line."""
    read = {model.name: read_document(model) for model in list_models(root)}
    documents = {name: found for name, found in read.items() if isinstance(found, Document)}
    findings = [found for found in read.values() if isinstance(found, Finding)]
    for document in documents.values():
        common = list(check_common(document))
        findings += common
        if document.is_ensemble:
            findings += check_ensemble(document, documents)
        else:
            broken = any(found.severity == "error" for found in common)
            findings += check_model(document, whole=not broken)
    return sorted(findings, key=lambda found: (found.file, found.line, found.what))
