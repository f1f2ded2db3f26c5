"""Variants of a model: the same inputs and outputs from a smaller or faster graph.

One file per kind, one line each in ``registry``. Nothing is imported here, since the samples of a
variant are found through its parameters.
"""
