"""The command ``tithe``: exit code 2 for a caller's mistake. A command is imported when it is named, or listed."""

from __future__ import annotations

import sys

import click

from tithe.cli.terminal import Stopped
from tithe.core.registry import names, resolve
from tithe.core.version import __version__

_CALLERS_MISTAKES = (
    *(ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError),
    ConnectionError,  # a store that is not there, or broke off
)


class RegisteredGroup(click.Group):
    """A group of the commands that are registered. What cannot be loaded is missing from the list."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        listed = []
        for name in self.names():
            try:
                self.registered(name)
            except ValueError:  # of a package that is not whole: an error only where it is named
                continue
            listed.append(name)
        return listed

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return self.registered(name) if name in self.names() else None

    def names(self) -> list[str]:
        return names("command")

    def registered(self, name: str) -> click.Command:
        """The command of this name; ValueError if it cannot be loaded."""
        command: click.Command = resolve("command", name)
        return command


_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


@click.group(cls=RegisteredGroup, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="tithe")
def cli() -> None:
    """Keep a small weighted share of your data, learn from that, and get a certificate of what it cost you.

    \b
    Example:
      tithe build rows.parquet -k 20 -m 5000 -o coreset.parquet
    """


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
