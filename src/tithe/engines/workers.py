"""What the workers of a cluster must have in common, so that any of them gives the same bits."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Iterable

import llvmlite.binding as llvm
import numba
import numpy as np
from threadpoolctl import threadpool_info

from tithe.core.version import __version__

Kind = tuple[str, ...]


def kind_of_worker() -> Kind:
    """What decides the last bits of a result in this process: versions, and the CPU that code is compiled for."""
    # a new worker may not have loaded all libraries yet, so each kind counts once
    blas = sorted({str(library.get("architecture")) for library in threadpool_info() if library["user_api"] == "blas"})
    cpu = os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()
    return __version__, np.__version__, numba.__version__, platform.machine(), cpu, *blas


def warn_if_kinds_differ(workers: Iterable[tuple[str, Kind]]) -> None:
    """Warn if workers, given by name and kind, are of several kinds."""
    kinds: dict[Kind, str] = {}
    for name, kind in workers:
        kinds.setdefault(kind, name)
    if len(kinds) > 1:
        listed = "; ".join(f"{name}: {' '.join(kind)}" for kind, name in kinds.items())
        warnings.warn(
            f"Workers have different CPUs or versions ({listed}). Results may differ in their last bits from run to "
            "run. Start all workers with OPENBLAS_CORETYPE=Haswell NUMBA_CPU_NAME=haswell to make them equal.",
            stacklevel=2,
        )
