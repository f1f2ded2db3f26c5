"""Objective search: the highest arrival rate at which everything that was asked for still holds."""
