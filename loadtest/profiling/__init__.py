"""Where the time of one model goes: in the runtime, in PyTorch, and in a server under load."""
