"""What servers tell Prometheus: one table of metrics, their buckets, and the text it reads."""

from serving.metrics.table import SERVER_METRICS, Metric

__all__ = ["SERVER_METRICS", "Metric"]
