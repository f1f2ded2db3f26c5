"""Measuring, deciding and planning: everything that happens on the client's side."""
