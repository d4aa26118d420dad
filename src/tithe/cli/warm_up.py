"""``tithe warm-up``: compile what commands need before it is needed, for an image of a container or a first lesson."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from time import perf_counter

import click

from tithe.cli.main import Command, cli
from tithe.cli.screen import print_table
from tithe.core.progress import seconds_text
from tithe.core.registry import names, resolve

_USUAL = ("kmeans", "logistic", "ridge")
_N_ROWS = 6000  # more than the coresets that are asked for, so that rows are drawn


@click.command(cls=Command)
@click.argument("models", metavar="[NAME]...", nargs=-1)
def warm_up(models: Sequence[str]) -> None:
    """Compile the loops of models, by fitting each to a small generated table. By default: kmeans, logistic, ridge.

    NAME is a learner of tithe fit, or another command that makes a model of a table, such as online. What is compiled
    is kept beside the package, or where NUMBA_CACHE_DIR says, and later processes need not wait for it.

    \b
    Example:
      tithe warm-up
      tithe warm-up kmeans online
    """
    begun = click.get_current_context()
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "rows.csv")
        _write_rows(table)
        for name in models or _USUAL:
            start = perf_counter()
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                _run(begun, name, str(table), os.path.join(folder, name.replace(".", "_")))
            spent.append([name, seconds_text(perf_counter() - start)])
    print_table("Compiled, and kept for the next process", ["model", "time"], spent)


def _write_rows(path: Path) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    X = rng.normal(size=(_N_ROWS, 4))
    y = X[:, 0] + 0.5 * rng.normal(size=_N_ROWS) > 0.0
    np.savetxt(path, np.column_stack([X, y]), fmt="%.5g", delimiter=",", header="a,b,c,d,y", comments="")


def _run(ctx: click.Context, name: str, table: str, output: str) -> None:
    """A fit, or another command of this name, on the table."""
    from tithe.cli.fit import fit

    if name in cli.names() and name != "fit":
        command, arguments = cli.registered(name), [table, "--columns", "a,b,c,d", "-o", output]
    else:
        command = fit.get_command(ctx, name)
        arguments = [table, "-o", output]
        options = {param.name for param in command.params}
        arguments += ["--target", "y"] if _needs_target(name) else ["--columns", "a,b,c,d"]
        arguments += ["-m", "500"] if "size" in options else []
    command.main(arguments, prog_name=f"tithe {name}", standalone_mode=False, parent=ctx.find_root())


def _needs_target(name: str) -> bool:
    """Whether a learner has a target; estimators that are no learners of ours have one."""
    if name not in names("learner"):
        return True
    from sklearn.base import ClassifierMixin, RegressorMixin

    return issubclass(resolve("learner", name), (ClassifierMixin, RegressorMixin))
