"""Dataclasses to Parquet files and back: whole files only, and nothing but what was declared."""

import io
import math
import os
import types
import typing
import uuid
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from bench.errors import BenchError

Row = TypeVar("Row")

_ARROW: Final = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}


class UnusableError(Exception):
    """A file that is no table of the expected kind; the message is the reason, without the path."""


def schema_of(kind: type[Any]) -> pa.Schema:
    """The Arrow schema of a dataclass: one column per field, nullable where the type allows None.

    Raises:
        TypeError: A field's type has no column type.
    """
    hints = typing.get_type_hints(kind)
    return pa.schema([_column(field.name, hints[field.name]) for field in fields(kind)])


def _column(name: str, hint: Any) -> pa.Field:
    nullable = isinstance(hint, types.UnionType) and types.NoneType in typing.get_args(hint)
    known = [part for part in typing.get_args(hint) if part is not types.NoneType]
    inner = known[0] if nullable and len(known) == 1 else hint
    if inner not in _ARROW:
        msg = f"field {name!r} has type {hint}, which has no column type"
        raise TypeError(msg)
    return pa.field(name, _ARROW[inner], nullable=nullable)


def save(rows: Sequence[object], kind: type[Any], path: Path) -> None:
    """Write rows as one Parquet file that is either whole or absent.

    Raises:
        BenchError: A number is NaN or infinite, a value has the wrong type, or the disk refuses.
    """
    schema = schema_of(kind)
    for row in rows:
        for name in schema.names:
            value = getattr(row, name)
            if isinstance(value, float) and not math.isfinite(value):
                msg = f"{path}: {name} is {value}. A value that is missing is None."
                raise BenchError(msg)
    columns = {name: [getattr(row, name) for row in rows] for name in schema.names}
    try:
        table = pa.table(columns, schema=schema)
    except (pa.ArrowException, TypeError) as error:
        msg = f"{path}: a value does not fit its column: {error}"
        raise BenchError(msg) from error
    for name in schema.names:
        if not schema.field(name).nullable and table[name].null_count:
            msg = f"{path}: {name} is None, but every row must have it."
            raise BenchError(msg)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    try:
        _replace(path, buffer.getvalue())
    except OSError as error:
        msg = f"{path}: cannot write: {error.strerror or error}."
        raise BenchError(msg) from error


def _replace(path: Path, content: bytes) -> None:
    """Put a file in place by renaming, so that no reader and no crash ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with draft.open("xb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    # The rename itself is on disk only when the folder is.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load(path: Path, kind: type[Row]) -> list[Row]:
    """The rows of a file written by `save`.

    Raises:
        UnusableError: The file is torn, is no Parquet, has other columns, or has NaN or infinities.
    """
    table = read_table(path)
    schema = schema_of(kind)
    missing = sorted(set(schema.names) - set(table.column_names))
    extra = sorted(set(table.column_names) - set(schema.names))
    if missing or extra:
        odd = [f"no {name!r}" for name in missing] + [f"unknown {name!r}" for name in extra]
        msg = f"not a table of {kind.__name__}: {', '.join(odd[:3])} ({len(odd)} in all)"
        raise UnusableError(msg)
    columns = {name: _values(table[name], schema.field(name)) for name in schema.names}
    return [
        kind(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)
    ]


def read_table(path: Path) -> pa.Table:
    """Whatever table the file holds.

    Raises:
        UnusableError: The file is torn or is no Parquet.
    """
    try:
        return pq.read_table(pa.BufferReader(path.read_bytes()))
    except (pa.ArrowException, OSError, ValueError) as error:
        # Arrow's own text differs between versions; the page must not.
        msg = "not readable as Parquet (torn, or not Parquet at all)"
        raise UnusableError(msg) from error


def _values(column: pa.ChunkedArray, field: pa.Field) -> list[Any]:
    if column.type != field.type and not pa.types.is_null(column.type):
        msg = f"column {field.name!r} holds {column.type}, expected {field.type}"
        raise UnusableError(msg)
    values: list[Any] = column.to_pylist()
    if not field.nullable and column.null_count:
        msg = f"column {field.name!r} has missing values"
        raise UnusableError(msg)
    if pa.types.is_floating(field.type) and not all(v is None or math.isfinite(v) for v in values):
        msg = f"column {field.name!r} has NaN or infinite values"
        raise UnusableError(msg)
    return values
