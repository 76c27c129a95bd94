"""``completion``: a script with which a shell completes commands, flags and names."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence

HELP = "a script with which bash and zsh complete commands, flags and names of `pfl-benchmark`"
USAGE = ""
EXAMPLES = """\
  pfl-benchmark completion > ~/.pfl-benchmark.sh; echo '. ~/.pfl-benchmark.sh' >> ~/.bashrc
  pfl-benchmark completion > ~/.pfl-benchmark.sh; echo 'autoload -U +X bashcompinit && bashcompinit; \
. ~/.pfl-benchmark.sh' >> ~/.zshrc"""

_SCRIPT = """\
# Completion of pfl-benchmark, for bash, and for zsh after bashcompinit. Made by: pfl-benchmark completion
_pfl_benchmark() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
    local command=${{COMP_WORDS[1]}} words i
    case $command in -*|'') command=run;; esac
    for ((i = COMP_CWORD - 1; i > 0; i--)); do  # a flag may take several values
        case ${{COMP_WORDS[i]}} in -*) before=${{COMP_WORDS[i]}}; break;; esac
    done
    case $word in -*) before=;; esac
    case $before in
{values}
    *) case $command in
{flags}
        esac
        [ "$COMP_CWORD" = 1 ] && words="$words {commands}" ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    [ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))
}}
complete -F _pfl_benchmark pfl-benchmark
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags: none."""


def execute(arguments: argparse.Namespace) -> None:
    """Print the script."""
    from pfl_benchmark.algorithms import ALGORITHMS
    from pfl_benchmark.commands import command_names, find_command
    from pfl_benchmark.config.run_config import RunConfig
    from pfl_benchmark.config.settings import SETTINGS
    from pfl_benchmark.datasets.api import DATASETS
    from pfl_benchmark.errors import flag
    from pfl_benchmark.models import ARCHITECTURES
    from pfl_benchmark.studies.catalogue import PROFILES, STUDIES

    values: dict[str, Sequence[str]] = {
        "--algo": sorted(ALGORITHMS),
        "--setting": [*SETTINGS],
        "--settings": [*SETTINGS],
        "--dataset": [*DATASETS],
        "--network": [*ARCHITECTURES],
        **{
            flag(spec.name): choices
            for spec in dataclasses.fields(RunConfig)
            if (choices := spec.metadata.get("choices"))
        },
        "list": ["methods", "settings", "datasets", "networks", "partitions", "shifts", "studies"],
        "methods": sorted(ALGORITHMS),
        "--methods": sorted(ALGORITHMS),
        "--only": [*STUDIES],
        "--profile": [*PROFILES],
    }
    flags = {}
    for name in command_names():
        parser = argparse.ArgumentParser(add_help=False)
        find_command(name).add_arguments(parser)
        flags[name] = sorted({*parser._option_string_actions, "--plugin", "--help"})
        for action in parser._actions:
            if action.choices:
                choices = [str(choice) for choice in action.choices]
                values |= dict.fromkeys(action.option_strings, choices)
    print(
        _SCRIPT.format(commands=" ".join(command_names()), values=_cases(values, 4), flags=_cases(flags, 8)),
        end="",
    )


def _cases(words: Mapping[str, Sequence[str]], indent: int) -> str:
    return "\n".join(f'{" " * indent}{name}) words="{" ".join(each)}" ;;' for name, each in words.items())
