"""The command ``tithe``: one file a command, exit code 2 for a caller's mistake."""

from __future__ import annotations

import sys

import click

from tithe.cli.build import build
from tithe.cli.choose_k import choose_k
from tithe.cli.cluster import cluster
from tithe.cli.compare import compare
from tithe.cli.demo import demo
from tithe.cli.denoise import denoise
from tithe.cli.fit import fit
from tithe.cli.inspect import inspect
from tithe.cli.merge import merge
from tithe.cli.predict import predict
from tithe.cli.size import size
from tithe.cli.stream import stream
from tithe.cli.text import Stopped
from tithe.core.version import __version__

_CALLERS_MISTAKES = (
    *(ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError),
    ConnectionError,  # a store that is not there, or broke off
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tithe")
def cli() -> None:
    """Keep a small weighted share of your data, learn from that, and get a certificate of what it cost you.

    \b
    Example:
      tithe build rows.parquet -k 20 -m 5000 -o coreset.parquet
    """


for command in (build, choose_k, cluster, compare, demo, denoise, fit, inspect, merge, predict, size, stream):
    cli.add_command(command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: 0 done, 2 the caller's mistake, 1 anything else."""
    try:
        args = sys.argv[1:] if arguments is None else arguments
        cli.main(args=args, prog_name="tithe", standalone_mode=False, obj=args)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Stopped.", err=True)
        sys.exit(1)
    except Stopped as stopped:
        click.echo(str(stopped), err=True)
        sys.exit(1)
    except _CALLERS_MISTAKES as error:
        click.echo(f"tithe: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        click.echo(f"tithe: {error}", err=True)
        sys.exit(1)
