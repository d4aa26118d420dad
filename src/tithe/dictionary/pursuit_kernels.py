"""Sparse codes: correlations of rows with atoms, matching pursuit, and the lasso."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, njit, types
from numba.core import cgutils

from tithe.core.data import Array
from tithe.core.parallel import over_parts, part_rows, single_blas_thread

ATOM_MULTIPLE = 16  # the number of atoms must be a multiple of it
_ROWS_AT_ONCE = 6  # rows at a time: with two vectors of a dozen sums each, what the registers of most CPUs hold
_TILE_ROWS = 8 * _ROWS_AT_ONCE  # rows that meet an atom while it is in the first-level cache
_PANEL_BYTES = 64  # of the atoms at a time
_CHUNK_BYTES = 1 << 18  # bytes of correlations at a time, so that they stay in the second-level cache
_FAST = {"contract", "reassoc", "nsz", "nnan"}
_RECOMPUTED_SHARE = {"float64": 1e-8, "float32": 1e-3}  # of the energy; less is only known from the residual itself
_MIN_SQUARE = {"float64": 1e-14, "float32": 1e-5}  # squared distance from the chosen atoms' span that counts as none
_LANES = ATOM_MULTIPLE
_ROUNDINGS = 64.0  # correlations below this multiple of the rounding of the signal's norm count as zero
_FAST_WITH_NAN = {"contract", "reassoc", "nsz"}
_TOLERANCE = {"float64": 1e-10, "float32": 1e-5}  # relative to the signal's norm: no coefficient moves by more
_MAX_SWEEPS = 20_000


@extending.intrinsic
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
def correlate(X, panels, first, last, alpha):
    """Correlations of rows first to last of ``X`` into ``alpha``, which has `correlation_rows` rows; all contiguous."""
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


Codes = tuple[Array, Array, Array, Array]  # atoms chosen, coefficients, squared errors, residuals

# for what is called for every row and makes no array: without counting references, which would take half the time
_row_njit = njit(cache=True, nogil=True, fastmath=_FAST, _nrt=False)  # type: ignore[call-overload]


@_row_njit
def _solve_up(low, dots, count, x):
    """x with low' x = along, low the lower triangle of the Cholesky factor."""
    for t in range(count - 1, -1, -1):
        total = dots[t]
        for s in range(t + 1, count):
            total -= low[s, t] * x[s]
        x[t] = total / low[t, t]


@_row_njit
def _residual(rows, i, atoms, picks, x, count, rest):
    """The residual of a signal with the chosen atoms; returns its square."""
    d = rows.shape[1]
    for j in range(d):
        rest[j] = rows[i, j]
    for t in range(count):
        value, c = x[t], picks[t]
        for j in range(d):
            rest[j] -= value * atoms[c, j]
    square = 0.0
    for j in range(d):
        square += rest[j] * rest[j]
    return square


# The next three run over all atoms, and are where the time goes. Compilers do not turn a largest value with its
# place into vector instructions, so lanes keep the largest value of every sixteenth atom.


@_row_njit
def _largest(alpha, i, lanes):
    for j in range(_LANES):
        lanes[j] = 0.0
    for b in range(0, alpha.shape[1], _LANES):
        for j in range(_LANES):
            size = abs(alpha[i, b + j])
            lanes[j] = size if size > lanes[j] else lanes[j]


@_row_njit
def _find(alpha, i, lanes, floor):
    """The atom with the largest correlation, -1 if it is below the floor."""
    a, b = lanes[0], lanes[1]
    for j in range(2, _LANES, 2):
        a = lanes[j] if lanes[j] > a else a
        b = lanes[j + 1] if lanes[j + 1] > b else b
    top = a if a > b else b
    if top > floor:
        lane = 0
        while lanes[lane] != top:
            lane += 1
        for c in range(lane, alpha.shape[1], _LANES):
            if abs(alpha[i, c]) == top:
                return c
    return -1


@_row_njit
def _advance(alpha, i, V, last, gram, at, low, step, lanes):
    """The new direction against all atoms, its share taken out of the correlations, and the largest of these."""
    number = alpha.dtype.type
    k = alpha.shape[1]
    scale = number(1.0 / low[last, last])
    w = number(low[last, 0] if last > 0 else 0.0)
    for c in range(k):
        V[last, c] = gram[at, c] - w * V[0, c]
    for t in range(1, last):
        w = number(low[last, t])
        for c in range(k):
            V[last, c] -= w * V[t, c]
    for j in range(_LANES):
        lanes[j] = 0.0
    for b in range(0, k, _LANES):
        for j in range(_LANES):
            v = V[last, b + j] * scale
            V[last, b + j] = v
            rest = alpha[i, b + j] - step * v
            alpha[i, b + j] = rest
            size = abs(rest)
            lanes[j] = size if size > lanes[j] else lanes[j]


@_row_njit
def _omp(
    rows, row, i, atoms, gram, alpha, energy, limit, target, cancels, thin, floor, V, lanes, low, dots, picks, x, rest
):
    """Chooses and solves for one signal; returns how many atoms it took. Its correlations are used up."""
    error = energy
    count = np.int64(0)
    _largest(alpha, i, lanes)
    while count < limit:
        c = _find(alpha, i, lanes, floor)
        if c < 0:
            break
        square = np.float64(gram[c, c])
        for t in range(count):
            w = np.float64(V[t, c])
            low[count, t] = w
            square -= w * w
        if square <= thin:
            break
        side = np.sqrt(square)
        dots[count] = alpha[i, c] / side
        low[count, count] = side
        picks[count] = c
        error -= dots[count] * dots[count]
        count += 1
        if target > 0.0 and error < cancels * energy:
            _solve_up(low, dots, count, x)
            error = _residual(rows, row, atoms, picks, x, count, rest)
        if count == limit or (target > 0.0 and error <= target):
            break
        _advance(alpha, i, V, count - 1, gram, c, low, alpha.dtype.type(dots[count - 1]), lanes)
        for t in range(count):
            alpha[i, picks[t]] = 0.0
    _solve_up(low, dots, count, x)
    return count


@_row_njit
def _least_squares(gram, picks, b, active, n_active, thin, low, dots, s):
    """The plain solution on the active atoms; the number of one that depends on those before, or -1."""
    for p in range(n_active):
        row = picks[active[p]]
        for q in range(p):
            total = np.float64(gram[row, picks[active[q]]])
            for t in range(q):
                total -= low[p, t] * low[q, t]
            low[p, q] = total / low[q, q]
        square = np.float64(gram[row, row])
        total = b[active[p]]
        for t in range(p):
            square -= low[p, t] * low[p, t]
            total -= low[p, t] * dots[t]
        if square <= thin:
            return p
        low[p, p] = np.sqrt(square)
        dots[p] = total / low[p, p]
    _solve_up(low, dots, n_active, s)
    return -1


@_row_njit
def _nnls(gram, picks, b, count, thin, slack, x, inside, active, low, dots, s):
    """Lawson and Hanson's method on the chosen atoms, from the solution without the newest one."""
    inside[count - 1] = True
    for _ in range(10 * count):  # it needs some two rounds for each atom; rounding must not make it turn for ever
        n_active = np.int64(0)  # a plain 0 is a type of its own, for which all that is called is compiled again
        for t in range(count):
            if inside[t]:
                active[n_active] = t
                n_active += 1
        dependent = _least_squares(gram, picks, b, active, n_active, thin, low, dots, s)
        if dependent >= 0:
            inside[active[dependent]] = False
            x[active[dependent]] = 0.0
            continue
        share = 1.0
        for p in range(n_active):
            if s[p] <= 0.0:
                share = min(share, x[active[p]] / (x[active[p]] - s[p]) if x[active[p]] > 0.0 else 0.0)
        for p in range(n_active):
            t = active[p]
            x[t] += share * (s[p] - x[t])
            if s[p] <= 0.0 and x[t] <= slack:
                inside[t] = False
                x[t] = 0.0
        if share < 1.0:
            continue
        largest, enter = slack, -1
        for t in range(count):
            if not inside[t]:
                gradient = b[t]
                for p in range(n_active):
                    gradient -= gram[picks[t], picks[active[p]]] * x[active[p]]
                if gradient > largest:
                    largest, enter = gradient, t
        if enter < 0:
            return
        inside[enter] = True


@njit(cache=True, nogil=True, fastmath=_FAST)
def _positive(rows, i, atoms, gram, alpha, limit, target, thin, floor, corr, low, dots, picks, x, rest, b):
    """Non-negative pursuit of one signal: the atom of largest correlation, then least squares >= 0 on all chosen."""
    inside, active, s = np.zeros(limit, np.bool_), np.empty(limit, np.int64), np.empty(limit)
    for c in range(len(corr)):
        corr[c] = alpha[c]
    count = 0
    while count < limit:
        j = np.argmax(corr)
        if not corr[j] > floor:
            break
        picks[count] = j
        b[count] = alpha[j]
        x[count] = 0.0
        count += 1
        _nnls(gram, picks, b, count, thin, floor, x, inside, active, low, dots, s)
        if target > 0.0 and _residual(rows, i, atoms, picks, x, count, rest) <= target:
            break
        for c in range(len(corr)):
            corr[c] = alpha[c]
        for t in range(count):
            value = alpha.dtype.type(x[t])
            for c in range(len(corr)):
                corr[c] -= value * gram[picks[t], c]
        for t in range(count):
            corr[picks[t]] = 0.0
    n_kept = 0  # atoms that were chosen and then not needed are left out
    for t in range(count):
        if x[t] > 0.0:
            picks[n_kept], x[n_kept] = picks[t], x[t]
            n_kept += 1
    return n_kept


@_row_njit
def _put(rows, row, atoms, picks, x, count, rest, into):
    chosen, values, error, residual = into
    error[row] = _residual(rows, row, atoms, picks, x, count, rest)
    for t in range(chosen.shape[1]):
        chosen[row, t] = picks[t] if t < count else -1
        values[row, t] = x[t] if t < count else 0.0
    if residual.shape[0] > 0:
        for j in range(len(rest)):
            residual[row, j] = rest[j]


# Functions of their own, as most callers need only the first, and a function that is not called is not compiled. They
# find codes of rows first to last, whose correlations are the first rows of alpha.


@_row_njit
def _energy(X, row):
    energy = 0.0
    for j in range(X.shape[1]):
        energy += np.float64(X[row, j]) * X[row, j]
    return energy


@njit(cache=True, nogil=True, fastmath=_FAST)
def _code(X, first, last, alpha, atoms, gram, limit, target, cancels, thin, slack, into):
    V, lanes = np.zeros((limit, gram.shape[0]), atoms.dtype), np.empty(_LANES, atoms.dtype)
    low, dots, x = np.empty((limit, limit)), np.empty(limit), np.empty(limit)
    picks, rest = np.empty(limit, np.int64), np.empty(X.shape[1])
    for row in range(first, last):
        energy = _energy(X, row)
        floor, count = slack * np.sqrt(energy), 0
        if energy > target:
            count = _omp(
                X, row, row - first, atoms, gram, alpha, energy, limit, target, cancels, thin, floor, V, lanes,
                low, dots, picks, x, rest,
            )  # fmt: skip
        _put(X, row, atoms, picks, x, count, rest, into)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _code_positive(X, first, last, alpha, atoms, gram, limit, target, cancels, thin, slack, into):
    corr = np.empty(gram.shape[0], atoms.dtype)
    low, dots, x, b = np.empty((limit, limit)), np.empty(limit), np.empty(limit), np.empty(limit)
    picks, rest = np.empty(limit, np.int64), np.empty(X.shape[1])
    for row in range(first, last):
        energy = _energy(X, row)
        floor, count = slack * np.sqrt(energy), 0
        if energy > target:
            count = _positive(
                X, row, atoms, gram, alpha[row - first], limit, target, thin, floor, corr, low, dots, picks, x, rest, b
            )
        _put(X, row, atoms, picks, x, count, rest, into)


def code_arrays(n: int, limit: int, d: int, dtype: Any, *, with_residual: bool) -> Codes:
    """Arrays for the codes of n signals, to be used again: new memory costs as much as a pursuit."""
    residual = np.empty((n if with_residual else 0, d), dtype)
    return np.empty((n, limit), np.int32), np.empty((n, limit), dtype), np.empty(n), residual


def pursue(
    X: Array,
    atoms: Array,
    *,
    n_nonzero: int,
    target: float = 0.0,
    positive: bool = False,
    with_residual: bool = False,
    into: Codes | None = None,
) -> Codes:
    """Sparse codes of the rows of ``X`` (n, d) in the unit rows of ``atoms`` (k, d), greedily.

    A row takes atoms until it has ``n_nonzero`` of them, its squared error is ``target`` or less, or no atom can
    reduce the error. Returns the atoms chosen (n, n_nonzero) int32, -1 where fewer were needed, their coefficients,
    the squared errors (n,) float64, and the residuals (n, d) if wanted. ``into``: arrays of an earlier call that are
    used again.
    """
    n, d = X.shape
    codes = code_arrays(n, n_nonzero, d, X.dtype, with_residual=with_residual) if into is None else into
    limits = _RECOMPUTED_SHARE[X.dtype.name], _MIN_SQUARE[X.dtype.name], _ROUNDINGS * float(np.finfo(X.dtype).eps)
    serial = n * _padded(len(atoms)) * (d + n_nonzero) < 4_000_000
    options = (n_nonzero, target, *limits, codes)
    _code_rows(X, atoms, _code_positive if positive else _code, options, serial=serial)
    return codes


def _padded(k: int) -> int:
    """The number of atoms with those of zeros that are added, which no row takes."""
    return -(-k // ATOM_MULTIPLE) * ATOM_MULTIPLE


def _code_rows(X: Array, atoms: Array, code: Callable[..., None], options: tuple[object, ...], *, serial: bool) -> None:
    """Call ``code(X, start, end, alpha, atoms, gram, *options)`` for chunks of all rows; alpha are correlations."""
    (n, d), k = X.shape, _padded(len(atoms))
    X = np.ascontiguousarray(X)
    atoms = np.concatenate([atoms, np.zeros((k - len(atoms), d))]).astype(X.dtype)
    exact = atoms.astype(np.float64)
    panels, rows, chunk_rows = as_panels(atoms), part_rows(n, 1), correlation_rows(k, X.itemsize)
    with single_blas_thread():
        gram = np.ascontiguousarray(exact @ exact.T).astype(X.dtype)

    def run(first: int, last: int) -> None:
        alpha, stop = np.empty((chunk_rows, k), X.dtype), min(n, last * rows)
        for start in range(first * rows, stop, chunk_rows):
            end = min(stop, start + chunk_rows)
            correlate(X, panels, start, end, alpha)
            code(X, start, end, alpha, atoms, gram, *options)

    over_parts(run, -(-n // rows), serial=serial)


# for what is called for every row and makes no array: without counting references, which would take half the time
_row_njit_with_nan = njit(cache=True, nogil=True, fastmath=_FAST_WITH_NAN, _nrt=False)  # type: ignore[call-overload]


@_row_njit_with_nan
def _subtract(alpha, i, gram, at, factor):
    for c in range(alpha.shape[1]):
        alpha[i, c] -= factor * gram[at, c]


@_row_njit_with_nan
def _descend_on_chosen(alpha, i, gram, penalty, positive, close, picks, x, count):
    """Coordinate descent on the chosen atoms until none moves; ``alpha`` holds the correlations of the residual."""
    for _ in range(_MAX_SWEEPS):
        moved = 0.0
        for t in range(count):
            c = picks[t]
            correlation = alpha[i, c] + x[t] * gram[c, c]
            new = max(0.0, abs(correlation) - penalty) / gram[c, c]
            if correlation < 0.0:
                new = 0.0 if positive else -new
            change = new - x[t]
            if change != 0.0:
                _subtract(alpha, i, gram, c, alpha.dtype.type(change))
                x[t] = new
                moved = max(moved, abs(change))
        if moved <= close:
            return


@njit(cache=True, nogil=True)
def _thin_out(atoms, picks, x, count):
    """Reduce a code of more atoms than columns to an equally good one of d atoms; returns their number.

    Along z with sum_t z_t atom_t = 0, where |x|_1 does not grow, nothing changes but x, until an entry vanishes.
    """
    d = atoms.shape[1]
    chosen_atoms = np.empty((d, d + 1))
    while count > d:
        for t in range(d + 1):
            for j in range(d):
                chosen_atoms[j, t] = atoms[picks[t], j]
        z = np.linalg.svd(chosen_atoms, full_matrices=True)[2][d]
        side = -1.0 if (np.sign(x[: d + 1]) * z).sum() > 0.0 else 1.0
        step, dropped = np.inf, -1
        for t in range(d + 1):
            fall = -side * z[t] * np.sign(x[t])
            if fall > 0.0 and abs(x[t]) / fall < step:
                step, dropped = abs(x[t]) / fall, t
        if dropped < 0:  # no entry falls by more than rounding
            dropped = np.argmin(np.abs(x[: d + 1]))
            step = 0.0
        for t in range(d + 1):
            x[t] += side * step * z[t]
        count -= 1
        picks[dropped], x[dropped] = picks[count], x[count]
    return count


@njit(cache=True, nogil=True, fastmath=_FAST_WITH_NAN)
def _descend(alpha, i, atoms, gram, penalty, positive, close, picks, x, taken):
    """One signal: the atom that violates the conditions most joins, until none does."""
    count = np.int64(0)
    for c in range(len(taken)):
        taken[c] = False
    for _ in range(4 * alpha.shape[1]):
        best, size = -1, penalty + close
        for c in range(alpha.shape[1]):
            correlation = alpha[i, c] if positive else abs(alpha[i, c])
            if correlation > size and not taken[c]:
                best, size = c, correlation
        if best < 0 or count == len(picks):
            break
        picks[count], x[count], taken[best] = best, 0.0, True
        count += 1
        _descend_on_chosen(alpha, i, gram, penalty, positive, close, picks, x, count)
        n_kept = np.int64(0)  # a plain 0 is a type of its own, for which _thin_out is compiled again
        for t in range(count):
            if x[t] != 0.0:
                picks[n_kept], x[n_kept] = picks[t], x[t]
                n_kept += 1
            else:
                taken[picks[t]] = False
        count = n_kept
        if count > atoms.shape[1]:
            count = _thin_out(atoms, picks, x, count)
            taken[:] = False
            for t in range(count):
                taken[picks[t]] = True
    return count


@njit(cache=True, nogil=True, fastmath=_FAST_WITH_NAN)
def _code_lasso(X, first, last, alpha, atoms, gram, penalty, positive, relative, into):
    """Codes of rows first to last, whose correlations are the first rows of ``alpha``."""
    k = gram.shape[0]  # on its way a code may have more entries than it ends with
    picks, x, rest, taken = np.empty(k, np.int64), np.empty(k), np.empty(X.shape[1]), np.empty(k, np.bool_)
    for row in range(first, last):
        close = relative * np.sqrt(_energy(X, row))
        count = _descend(alpha, row - first, atoms, gram, penalty, positive, close, picks, x, taken)
        _put(X, row, atoms, picks, x, count, rest, into)


def lasso_codes(
    X: Array,
    atoms: Array,
    *,
    penalty: float,
    positive: bool = False,
    with_residual: bool = False,
    into: Codes | None = None,
) -> Codes:
    """Codes that minimize |y - a D|^2 / 2 + penalty |a|_1 for each row y of ``X``, as `pursue` returns them."""
    (n, d), close = X.shape, _TOLERANCE[X.dtype.name]
    n_nonzero = min(len(atoms), d)
    codes = code_arrays(n, n_nonzero, d, X.dtype, with_residual=with_residual) if into is None else into
    serial = n * _padded(len(atoms)) * d < 1_000_000
    _code_rows(X, atoms, _code_lasso, (penalty, positive, close, codes), serial=serial)
    return codes
