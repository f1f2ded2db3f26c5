"""Derive a variant of a model: make it, measure it against its parent, keep it or leave nothing."""
