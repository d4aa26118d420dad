"""Products of signals with atoms that have the same bits wherever a signal stands among the rows.

A matrix product of BLAS does not: many of its kernels treat the last rows of a block differently. Here an entry is
the sum over the columns in their order, one multiply-add after the other, by the same instructions for every row: six
rows at a time, filled up with rows of zeros, with as many atoms as fill 64 bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, njit, types
from numba.core import cgutils

from tithe.core.data import Array

ATOM_MULTIPLE = 16  # the number of atoms must be a multiple of it
_ROWS_AT_ONCE = 6  # rows at a time: with two vectors of a dozen sums each, what the registers of most CPUs hold
_TILE_ROWS = 8 * _ROWS_AT_ONCE  # rows that meet an atom while it is in the first-level cache
_PANEL_BYTES = 64  # of the atoms at a time
_CHUNK_BYTES = 1 << 18  # bytes of correlations at a time, so that they stay in the second-level cache


@extending.intrinsic  # type: ignore[untyped-decorator]
def _multiply(_typing: Any, rows: Any, panels: Any, panel: Any, out: Any, row: Any, at: Any, column: Any) -> Any:
    """out[at + r, column:] = rows[row + r] @ panels[panel] for r < 6, all arrays contiguous."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def pointer(number: int, *indices: Any) -> Any:
            kind = signature.args[number]
            array = context.make_array(kind)(context, builder, args[number])
            return cgutils.get_item_pointer(context, builder, kind, array, indices)

        size = signature.args[0].dtype.bitwidth // 8
        lanes, index, zero = (
            _PANEL_BYTES // size,
            context.get_value_type(types.intp),
            context.get_constant(types.intp, 0),
        )
        vector = ir.VectorType(context.get_value_type(signature.args[0].dtype), lanes)
        name = f"llvm.fmuladd.v{lanes}f{8 * size}"
        fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
        matrix = context.make_array(signature.args[0])(context, builder, args[0])
        d = builder.extract_value(matrix.shape, 1)
        row, at, column = args[4:]
        starts = [pointer(0, builder.add(row, index(r)), zero) for r in range(_ROWS_AT_ONCE)]
        atoms = pointer(1, args[2], zero, zero)
        zeros = ir.Constant(vector, None)
        sums = [cgutils.alloca_once_value(builder, zeros) for _ in range(_ROWS_AT_ONCE)]
        for total in sums:
            builder.store(zeros, total)
        lane_zero = ir.Constant(ir.VectorType(ir.IntType(32), lanes), None)
        with cgutils.for_range(builder, d) as loop:
            entry = builder.bitcast(builder.gep(atoms, [builder.mul(loop.index, index(lanes))]), vector.as_pointer())
            atom = builder.load(entry)
            atom.align = size
            for start, total in zip(starts, sums, strict=True):
                value = builder.load(builder.gep(start, [loop.index]))
                single = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.IntType(32)(0))
                spread = builder.shuffle_vector(single, ir.Constant(vector, ir.Undefined), lane_zero)
                builder.store(builder.call(fma, [spread, atom, builder.load(total)]), total)
        for r, total in enumerate(sums):
            target = builder.bitcast(pointer(3, builder.add(at, index(r)), column), vector.as_pointer())
            builder.store(builder.load(total), target).align = size
        return context.get_dummy_value()

    return types.void(rows, panels, types.intp, out, types.intp, types.intp, types.intp), build


@njit(cache=True, nogil=True)
def _correlate(X, panels, first, last, alpha):
    d, lanes = X.shape[1], panels.shape[2]
    tile = np.zeros((_TILE_ROWS, d), X.dtype)
    for start in range(first, last, _TILE_ROWS):
        r = min(last - start, _TILE_ROWS)
        for i in range(r):
            for j in range(d):
                tile[i, j] = X[start + i, j]
        for p in range(panels.shape[0]):
            for i in range(0, r, _ROWS_AT_ONCE):
                _multiply(tile, panels, p, alpha, i, start - first + i, p * lanes)


def as_panels(atoms: Array) -> Array:
    """Atoms (k, d), k a multiple of `ATOM_MULTIPLE`, in the layout that `correlate` takes: (panels, d, lanes)."""
    k, d = atoms.shape
    lanes = _PANEL_BYTES // atoms.itemsize
    return np.ascontiguousarray(atoms.reshape(k // lanes, lanes, d).transpose(0, 2, 1))


def correlation_rows(k: int, itemsize: int) -> int:
    """The number of signals to correlate at a time."""
    return _TILE_ROWS * max(1, _CHUNK_BYTES // (_TILE_ROWS * k * itemsize))


def correlate(X: Array, panels: Array, first: int, last: int, alpha: Array) -> None:
    """Correlations of rows first to last of ``X`` (n, d) into the first rows of ``alpha``; both are contiguous.

    ``alpha`` has `correlation_rows` rows; a few after row last - first are overwritten.
    """
    _correlate(X, panels, first, last, alpha)
