"""The systems under test: models, the protocol they are served with, and the servers."""

import os

# Read when ONNX Runtime is first imported. Its telemetry has a thread that uploads while a model is
# measured, and that a process forked later waits for at its end, for ever.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
