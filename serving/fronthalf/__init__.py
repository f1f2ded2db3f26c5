"""The front half of an image model: from a picture as it travels to the tensor the model takes.

``picture`` is the only code that does this. Our servers import it; Triton's Python step gets a copy
beside ``step``, so the answer is the same on every backend.
"""

from __future__ import annotations

from pathlib import Path

from serving.fronthalf.picture import FrontHalf, Payload, PictureError

STEP_FILES = {
    "model.py": Path(__file__).with_name("step.py"),
    "picture.py": Path(__file__).with_name("picture.py"),
}
"""What lies in the version folder of Triton's step, and the file here that each is a copy of."""

__all__ = ["STEP_FILES", "FrontHalf", "Payload", "PictureError"]
