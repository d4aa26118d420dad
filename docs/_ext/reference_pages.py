"""Writes the pages of the API and of the command line from the code, before Sphinx reads the pages.

A new public name, command or option is on its page without an edit here.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

import tithe

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = "reference"


def public_names() -> dict[str, list[str]]:
    """The public names of each public module, without those of packages that are not installed."""
    names = {"tithe": [name for name in tithe.__all__ if name != "__version__"]}
    for package in [name for name in dir(tithe) if name not in tithe.__all__] + ["testing"]:
        module = import_module(f"tithe.{package}")
        names[module.__name__] = [name for name in _exported(module) if _is_installed(module, name)]
    return {module: sorted(members) for module, members in names.items()}


def _exported(module: ModuleType) -> list[str]:
    """The names that a module imports as ``import name as name``, also where that is only for type checkers."""
    imports = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.ImportFrom)]
    return [alias.name for node in imports for alias in node.names if alias.asname == alias.name]


def _is_installed(module: ModuleType, name: str) -> bool:
    try:
        getattr(module, name)
    except (ImportError, AttributeError):  # of an engine, or a family, that is not installed
        return False
    return True


def names_by_job() -> dict[str, tuple[str, list[str]]]:
    """What each job is about, and the public names that do it, as ``api_jobs.toml`` has them."""
    jobs = tomllib.loads(Path(__file__).with_name("api_jobs.toml").read_text())
    given = {name for job in jobs.values() for name in job["names"]}
    everything = [f"{module}.{name}" for module, names in public_names().items() for name in names]
    found: dict[str, tuple[str, list[str]]] = {}
    for title, job in jobs.items():
        names = []
        for name in job["names"]:
            others = [n for n in everything if n.rpartition(".")[0] == name[:-2] and n not in given]
            names += others if name.endswith(".*") else [name] * (name in everything)
        found[title] = (job["about"], names)
    return found


def api_page() -> str:
    """One page with a table of names for each job, each name linked to a page of its own."""
    parts = ["# API by job", "Each name has an example, which the tests run."]
    for title, (about, names) in names_by_job().items():
        listing = "\n".join(f"   {name}" for name in names)
        table = f".. autosummary::\n   :toctree: generated\n   :nosignatures:\n\n{listing}"
        parts.append(f"## {title}\n\n{about}\n\n```{{eval-rst}}\n{table}\n```")
    return "\n\n".join(parts) + "\n"


def command_page(command: click.Command, path: str, parent: click.Context | None = None) -> str:
    """A command as Markdown: what it does, its examples, its arguments and its options; then its subcommands."""
    context = click.Context(command, info_name=path.rpartition(" ")[2], parent=parent, show_default=True)
    text, _, examples = inspect.cleandoc(command.help or "").replace("\f", "").partition("\b\nExample:\n")
    usage = " ".join(["$", path, *command.collect_usage_pieces(context)])
    about = "\n\n".join(_escaped(paragraph) for paragraph in text.split("\n\n"))
    parts = [f"{'#' * min(len(path.split()) + 1, 4)} {path}", about.strip(), f"```text\n{usage}\n```"]
    if examples.strip():
        lines = [f"$ {line}" for line in inspect.cleandoc(examples).splitlines() if line.strip()]
        parts.append("```console\n" + "\n".join(lines) + "\n```")
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    if options:
        parts.append(_options_list(options, context))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            if member is not None and not member.hidden:
                parts.append(command_page(member, f"{path} {name}", context))
    return "\n\n".join(parts)


def _options_list(options: list[click.Option], context: click.Context) -> str:
    """Each option with its description below it: a list is readable at every width, a table is not."""
    entries = []
    for option in options:
        names, about = option.get_help_record(context) or ("", "")
        entries.append(f"`{names}`\n: {_escaped(about) or 'No description.'}")
    return "\n\n".join(entries)


def _escaped(text: str) -> str:
    """Text in Markdown with its marks as they are; names of options are code, so that their dashes can be copied."""
    for mark in "\\|*_<[`$":
        text = text.replace(mark, "\\" + mark)
    text = re.sub(r"(?<![\w`-])(--[a-z][a-z-]*)", r"`\1`", " ".join(text.split()))
    return text.replace("``", "`")


def write_pages(app: Sphinx, config: Any) -> None:
    from tithe.cli.main import cli

    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(exist_ok=True)
    _write(folder / "api.md", api_page())
    intro = "# Command line\n\nThis page is made from the code. `tithe COMMAND --help` shows the same.\n\n"
    page = command_page(cli, "tithe")
    _write(folder / "commands.md", intro + page.replace("# tithe", "# The command tithe", 1) + "\n")


def _write(path: Path, text: str) -> None:
    """Write a page if it has changed: Sphinx reads again what is newer."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def skip_foreign_members(app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what a class inherits from other packages: they document it."""
    function = inspect.unwrap(member.fget if isinstance(member, property) and member.fget else member)
    module = getattr(function, "__module__", None)
    if what == "class" and module is not None and not module.startswith("tithe"):
        return True
    return None


def keep_bars(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Keep ``|x|`` of formulas, which reStructuredText would take for the name of a substitution."""
    for number, line in enumerate(lines):
        if "|" in line and not line.lstrip().startswith((">>>", "...")):
            parts = line.split("`")  # what stands between backticks is code
            lines[number] = "`".join(p.replace("|", "\\|") if i % 2 == 0 else p for i, p in enumerate(parts))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", write_pages)  # before Sphinx looks which pages there are
    app.connect("autodoc-process-docstring", keep_bars)
    app.connect("autodoc-skip-member", skip_foreign_members)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
