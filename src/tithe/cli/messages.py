"""What the library says, in the words of the command line: ``columns=[...]`` becomes ``--columns``.

Messages of the library write a parameter with its value, ``bad_rows='skip'``, or, where a name with an underscore can
be nothing else, without one. `in_options` puts the option of the running command in its place.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

_PYTHON_NAMES = {"size": "coreset_size", "seed": "random_state", "jobs": "n_jobs"}  # where an option has another name
_VALUE = r"(?:'([^']*)'|\"([^\"]*)\"|\w+\(([^()]*)\)|(\[[^\]]*\]|\([^()]*\)|\.\.\.)|([\w.+-]*\w))?"
_WRITTEN = ("output", "checkpoint", "keep_leaves")  # options that name a file or folder to write
_BARE = r"(?![\w='(.]|\.\w)"


class Command(click.Command):
    """A command whose errors and warnings name its options."""

    def invoke(self, ctx: click.Context) -> Any:
        _refuse_urls(ctx)
        with _warnings_in_options(ctx):
            try:
                return super().invoke(ctx)
            except ValueError as error:
                raise ValueError(in_options(str(error), ctx)) from error


def _refuse_urls(ctx: click.Context) -> None:
    """Refuse to write to a URL, before any work is done."""
    for param in ctx.command.get_params(ctx):
        value = ctx.params.get(str(param.name))
        if param.name in _WRITTEN and isinstance(value, str) and "://" in value:
            raise click.UsageError(
                f"{_flag(param.opts)}: {value!r} is a URL. Results are written to this machine: name a file or folder."
            )


@contextmanager
def _warnings_in_options(ctx: click.Context) -> Iterator[None]:
    """Print warnings as one line each, without the place in the code."""

    def show(message: Warning | str, *details: Any, **more: Any) -> None:
        click.echo(f"tithe: {in_options(str(message), ctx)}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def in_options(message: str, ctx: click.Context | None = None) -> str:
    """The message with the options of the running command in place of parameters."""
    ctx = click.get_current_context() if ctx is None else ctx
    for param in ctx.command.get_params(ctx):
        if isinstance(param, click.Option) and param.name:
            message = _replaced(message, _PYTHON_NAMES.get(param.name, param.name), param)
    # a message that names both has the option twice now
    return re.sub(r"(--[\w-]+(?: [^\s()]+)?) \(\1\)", r"\1", message)


def _replaced(message: str, name: str, option: click.Option) -> str:
    flag = _flag(option.opts)

    def with_value(match: re.Match[str]) -> str:
        quoted, double_quoted, call, _, word = match.groups()
        value = quoted or double_quoted or call or word
        if option.is_flag and value in ("True", "False"):
            return flag if value == "True" or not option.secondary_opts else _flag(option.secondary_opts)
        return f"{flag} {value}" if value else flag

    message = re.sub(rf"(?<![\w.-]){name}={_VALUE}", with_value, message)
    return re.sub(rf"(?<![\w.'-]){name}{_BARE}", flag, message) if "_" in name else message


def _flag(names: list[str]) -> str:
    """The longest form of an option."""
    return max(names, key=len)
