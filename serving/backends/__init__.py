"""Every way to serve a model: one file or folder each, one line in the registry.

Nothing is imported here: a server's own process would otherwise carry every other backend.
"""
