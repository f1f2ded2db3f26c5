"""Our own server: ONNX Runtime behind HTTP and gRPC, one process, dynamic batching.

``launch`` describes how to start it; ``python -m serving.backends.onnxruntime`` is the server.
"""
