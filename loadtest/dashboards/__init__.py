"""Dashboards, rules and their documentation, all made from the table of metrics."""
