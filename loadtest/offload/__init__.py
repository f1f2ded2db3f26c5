"""Onboard against offload: one model on the device, or on a server behind a link."""
