"""The command line: ``python -m benchmark [command] ...``, or ``pfl-benchmark ...`` where it is installed.

Each command is a module of `commands`. Exit codes: 0 done, 2 bad input (one line on standard
error), 1 a fault of the program (traceback), 130 interrupted, 141 the reader of the output went away.
Nothing here imports PyTorch, so that ``--help`` is immediate.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import shutil
import signal
import sys
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from pfl_benchmark.commands import Command, advice, command_names, find_command
from pfl_benchmark.console.streams import OutputError, checked_streams
from pfl_benchmark.console.terminal import say
from pfl_benchmark.errors import UserError, printable
from pfl_benchmark.installation import PROGRAM, with_program
from pfl_benchmark.resolve.plugins import load_plugins, take_plugins

DEFAULT_COMMAND = "run"
_WORDS = {
    "expected one argument": "expected a value after it",
    "expected at least one argument": "expected one value or more after it",
    "ignored explicit argument": "takes no value, but was given",
    "the following arguments are required:": "the command line lacks",
}  # argparse's complaints, more plainly


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command line (default: the process's) and return its exit code."""
    with checked_streams():
        return _carried_out(list(sys.argv[1:] if arguments is None else arguments))


def _carried_out(words: list[str]) -> int:
    try:
        with _terminable():
            _dispatch(words)
            sys.stdout.flush()
    except OutputError as error:
        _drop_output()
        print(f"error: the output cannot be written: {error}; send it elsewhere", file=sys.stderr)
        return 2
    except UserError as error:
        print(f"error: {printable(' '.join(str(error).splitlines()))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; to continue, give the same command again", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _drop_output()
        return 141
    except Exception as error:
        if isinstance(error, PermissionError) and error.filename is not None:
            advice = "give yourself access to it, or name another place"
            print(f"error: {error.filename}: {error.strerror}; {advice}", file=sys.stderr)
            return 2
        traceback.print_exc()
        return 1
    return 0


def _dispatch(words: list[str]) -> None:
    plugins, words = take_plugins(words)
    if words[:1] == ["--version"]:
        from pfl_benchmark import __version__

        if words[1:]:
            raise UserError(f"unexpected '{words[1]}' after --version; give --version alone")
        print(f"pfl-benchmark {__version__}")
        return
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return
    name, rest = (DEFAULT_COMMAND, words) if words[0].startswith("-") else (words[0], words[1:])
    command = find_command(name)
    if "-h" in rest or "--help" in rest:  # wins over whatever else is missing or wrong
        print(parser_of(name, command).format_help(), end="")
    else:
        load_plugins(plugins)  # before flags and studies are made of what there is
        command.execute(parser_of(name, command).parse(rest))


def _overview() -> str:
    default = parser_of(DEFAULT_COMMAND, find_command(DEFAULT_COMMAND))
    width = max(map(len, command_names()))
    lines = [
        "A reference benchmark of personalized federated learning.",
        "",
        f"commands ({PROGRAM} COMMAND --help tells more):",
        *(f"  {name:{width}}  {find_command(name).HELP}" for name in command_names()),
        "",
        f"Without a command, flags are those of {DEFAULT_COMMAND}:",
        "",
        default.format_help().rstrip(),
    ]
    return "\n".join(lines)


def parser_of(name: str, command: Command) -> Parser:
    """The parser of a command's flags."""
    shown = f"[{name}]" if name == DEFAULT_COMMAND else name
    parser = Parser(
        usage=f"{PROGRAM} {shown} {command.USAGE}",
        epilog=f"examples:\n{command.EXAMPLES}",
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    command.add_arguments(parser)
    general = parser.add_argument_group("general")
    text = "a Python file or module with methods, datasets, networks or settings of your own; may be repeated"
    general.add_argument("--plugin", metavar="FILE", default=argparse.SUPPRESS, help=text)  # taken before
    general.add_argument("-h", "--help", action="store_true", help="show this and exit")
    return parser


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Breaks no line inside of a name such as cifar10-s2."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns, 110) - 2
        super().__init__(prog, max_help_position=32, width=width)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are `UserError`s of one line."""

    def parse(self, words: list[str]) -> argparse.Namespace:
        """Parse all of `words`; a UserError names an unknown flag, a missing or bad value, a stray word."""
        for text in words:
            if text.startswith("--") and text.endswith("=--"):  # which argparse takes for an empty list
                raise UserError(f"{text.removesuffix('=--')} is '--'; expected a value")
        given, rest = self.parse_known_args(words)
        if not rest:
            if more := advice.twice(self, words):
                say(f"note: {more}")
            return given
        stray = next((word for word in rest if word.startswith("-")), None)
        if stray is None:
            raise UserError(advice.of_word(self, words, rest[0]))
        flag = stray.split("=")[0]
        raise UserError(self._unknown(flag, getattr(given, "algo", None)))

    def format_help(self) -> str:
        """What ``--help`` prints."""
        return with_program(super().format_help())

    def _example(self) -> str:
        """The first example of this command, without what is said of it."""
        begin = " ".join((self.usage or "").split()[: len(PROGRAM.split()) + 1])
        lines = [line.strip() for line in (self.epilog or "").splitlines()]
        found = next((line for line in lines if line.startswith(f"{begin} ")), self.usage or "")
        return found.partition("   ")[0]

    def _unknown(self, flag: str, algo: str | None) -> str:
        """What to say of a flag that this command does not have, asked of a method (None: of any)."""
        from pfl_benchmark.config.fields import meant

        name = flag.lstrip("-")  # all have the dashes in common
        known = [flag.lstrip("-") for action in self._actions for flag in action.option_strings]
        owners = self._owners(hyper := name.replace("-", "_"))
        if owners and (algo is None or algo in owners):
            return f"'{hyper}' is a hyper-parameter of a method: give it as --set {hyper}=VALUE"
        field = meant(name, known)
        if owners and not field:
            has = f"'{hyper}' is a hyper-parameter of {', '.join(owners)}, not of '{algo}'"
            return f"{has}; drop {flag}, or choose another --algo"
        if not field and (told := advice.of_flag(self, flag, algo)):
            return told
        close = [field] if field else difflib.get_close_matches(name, known, n=1)
        nearest = f" (did you mean '--{close[0]}'?)" if close else ""
        one = f"; {advice.one_value(field)}" if name != field == "seed" else ""
        return f"unknown flag '{flag}'{nearest}{one}; --help shows all flags"

    def _owners(self, name: str) -> list[str]:
        """The methods that have a hyper-parameter, where this command takes some."""
        if "--set" not in self._option_string_actions:
            return []
        from pfl_benchmark.resolve.run import owners

        return owners(name)

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ")
        for theirs, ours in _WORDS.items():
            if theirs.endswith(":") and theirs in message:
                message += f"; give it, as in: {self._example()}"
            message = message.replace(theirs, ours)
        raise UserError(message)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let a request to terminate end the program in the same orderly way as Ctrl-C."""

    def stop(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread, which alone gets signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _drop_output() -> None:
    """Nobody reads any more: what is still buffered must not fail again when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, OutputError):
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
