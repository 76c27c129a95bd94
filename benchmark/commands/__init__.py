"""The commands, one module each; a module put here or into a paper is a command, without any other edit.

A module is what `Command` says. Its name is the command's, with underscores for hyphens. It imports what is
slow (PyTorch) only when it is executed, or for its flags where launchers declare them (`tables`).
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from typing import Protocol, cast

from pfl_benchmark.errors import UserError, unknown
from pfl_benchmark.studies.papers import offered

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
    return sorted(_modules(), key=lambda name: (name != "run", name))


def _modules() -> dict[str, str]:
    """The module of every command; packages hold what commands share."""
    return {
        module.name.replace("_", "-"): f"{package.__name__}.{module.name}"
        for package in [sys.modules[__name__], *offered("commands")]
        for module in pkgutil.iter_modules(package.__path__)
        if not module.ispkg
    }


def find_command(name: str) -> Command:
    """The command of that name.

    Raises:
        UserError: unknown; suggests the nearest.
    """
    names = command_names()
    if name not in names:
        from pfl_benchmark.commands import advice

        if name and (meant := advice.of_command(name)):
            raise UserError(f"unknown command '{name}': {meant}")
        raise unknown("command", name, names)
    return cast(Command, importlib.import_module(_modules()[name]))
