"""The commands, one module each; a module put here is a command, nothing else needs to be edited.

A module is what `Command` says. Its name is the command's, with underscores for hyphens; names that begin
with an underscore are no commands. It imports what is slow (PyTorch) only when it is executed.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from typing import Protocol, cast

from benchmark.errors import unknown

__all__ = ["Command", "command_names", "find_command"]


class Command(Protocol):
    """What a module of this package defines."""

    HELP: str  # one line for the overview
    USAGE: str  # what follows the command's name
    EXAMPLES: str  # indented lines that end its --help

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the flags."""

    def execute(self, arguments: argparse.Namespace) -> None:
        """Do it.

        Raises:
            UserError: bad input.
        """


def command_names() -> list[str]:
    """All commands, `run` first, then by name."""
    names = [module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__)]
    return sorted(
        (name for name in names if not name.startswith("-")), key=lambda name: (name != "run", name)
    )


def find_command(name: str) -> Command:
    """The command of that name.

    Raises:
        UserError: unknown; suggests the nearest.
    """
    names = command_names()
    if name not in names:
        raise unknown("command", name, names)
    return cast(Command, importlib.import_module(f"{__name__}.{name.replace('-', '_')}"))
