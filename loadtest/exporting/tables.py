"""The table of a run as CSV, JSON and Parquet."""

from __future__ import annotations

import csv
import io
import json
from typing import BinaryIO

from loadtest.exporting.extras import needed
from loadtest.exporting.rows import Value, table_of
from loadtest.folder import ResultsFolder
from loadtest.observing.openmetrics import Progress


def write_csv(folder: ResultsFolder, stream: BinaryIO, progress: Progress) -> None:
    """RFC 4180 in UTF-8 with a header; empty where nothing was measured, true and false."""
    table = table_of(folder, progress)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(table.columns)
    writer.writerows([_in_csv(value) for value in row] for row in table.full_rows())
    stream.write(text.getvalue().encode())


def _in_csv(value: Value) -> Value:
    return str(value).lower() if isinstance(value, bool) else value


def write_json(folder: ResultsFolder, stream: BinaryIO, progress: Progress) -> None:
    """A list of objects with the same keys; null where nothing was measured."""
    table = table_of(folder, progress)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.full_rows()]
    stream.write(json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n")


def write_parquet(folder: ResultsFolder, stream: BinaryIO, progress: Progress) -> None:
    """Raises MachineError without pyarrow."""
    arrow, parquet = needed("pyarrow", "parquet"), needed("pyarrow.parquet", "parquet")
    kinds = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    table = table_of(folder, progress)
    schema = arrow.schema([(name, kinds[kind]) for name, kind in table.columns.items()])
    parquet.write_table(arrow.Table.from_pylist(table.rows, schema=schema), stream)
