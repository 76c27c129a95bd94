"""Flags and settings, and the configuration that they come to."""

import argparse
import dataclasses
import re

import pytest

from pfl_benchmark.cli import Parser
from pfl_benchmark.commands import command_names
from pfl_benchmark.commands import run as run_command
from pfl_benchmark.config.fields import changes
from pfl_benchmark.config.flags import config_of
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import DEFAULT_SETTING, SETTINGS
from pfl_benchmark.errors import flag
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.resolve.run import check_data

FIELDS = [spec for spec in dataclasses.fields(RunConfig) if spec.name not in ("algo", "hyper", "stop_after")]


def parse(words: str) -> argparse.Namespace:
    parser = Parser(allow_abbrev=False, add_help=False)
    run_command.add_arguments(parser)
    return parser.parse(words.split())


@pytest.fixture
def help_of(command):
    """The help of a flag, on one line."""
    entries = re.split(r"\n(?=  -)", command("run --help").out.replace("\n\n", "\n  -"))

    def find(name: str) -> str:
        (entry,) = [entry for entry in entries if re.match(rf"  {name}[ ,]", entry)]
        return " ".join(entry.split())

    return find


@pytest.mark.parametrize("spec", FIELDS, ids=lambda spec: spec.name)
def test_every_field_is_a_flag(spec, help_of):
    assert spec.metadata["doc"] in help_of(flag(spec.name))
    assert "(default: " in help_of(flag(spec.name))
    if isinstance(spec.default, bool):
        assert getattr(parse(flag(spec.name)), spec.name) is True
        assert getattr(parse(flag("no_" + spec.name)), spec.name) is False
    else:
        typed = "none" if spec.default == "" else spec.default
        assert help_of(flag(spec.name)).endswith(f" {typed})")
        assert getattr(parse(f"{flag(spec.name)} {typed}"), spec.name) == spec.default
    assert getattr(parse(""), spec.name) is None


@pytest.mark.parametrize("name", ["device", "executor", "results_dir"])
def test_help_knows_the_defaults_of_the_execution(name, help_of):
    assert f"(default: {getattr(Execution(), name)}" in help_of(flag(name))


@pytest.mark.parametrize("words", ["", "--help", "-h", "run --help", "run -h --rounds x"])
def test_help(words, command):
    answer = command(words)
    assert (answer.code, answer.err) == (0, "")
    for part in ("--algo", "method:", "protocol:", "execution:", "output:", "examples:"):
        assert part in answer.out


@pytest.mark.parametrize("name", command_names())
def test_overview_and_help_of_each_command(name, command):
    assert f"  {name} " in command("").out
    answer = command(f"{name} --help")
    assert answer.code == 0
    assert "--help" in answer.out


def test_a_new_module_is_a_new_command(command, tmp_path, monkeypatch):
    import pfl_benchmark.commands as package

    (tmp_path / "say_hello.py").write_text(
        "HELP = 'greets'\nUSAGE = ''\nEXAMPLES = ''\n"
        "def add_arguments(parser): parser.add_argument('--name')\n"
        "def execute(arguments): print('hello', arguments.name)\n"
    )
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    assert command("say-hello --name you").out == "hello you\n"
    assert re.search(r"(?m)^  say-hello +greets$", command("--help").out)


@pytest.mark.parametrize("name", SETTINGS)
def test_setting_alone(name):
    found, config = config_of(parse(f"--setting {name}"))
    assert found == name
    assert config == RunConfig(**SETTINGS[name].values)
    assert changes(name, config) == {}


def test_default_settings():
    assert config_of(parse(""))[0] == DEFAULT_SETTING
    for dataset in {setting.values["dataset"] for setting in SETTINGS.values()}:
        name, config = config_of(parse(f"--dataset {dataset}"))
        assert config.dataset == dataset
        assert name == next(n for n, setting in SETTINGS.items() if setting.values["dataset"] == dataset)


def test_flags_win_over_the_setting():
    _, config = config_of(parse("--setting digits-s2 --rounds 7 --lr 0.5 --augment --eval-every 0"))
    assert (config.rounds, config.lr, config.augment, config.eval_every) == (7, 0.5, True, 0)
    assert config.clients == SETTINGS["digits-s2"].values["clients"]
    assert changes("digits-s2", config) == {"rounds": 7, "lr": 0.5, "augment": True, "eval_every": 0}


@pytest.mark.parametrize(
    ("words", "augment", "padding"),
    [
        ("", True, 0),  # the setting's own
        ("--augment", True, 0),
        ("--crop-padding 4", True, 4),
        ("--no-augment", False, RunConfig.crop_padding),
        ("--partition distinct", True, 0),
    ],
)
def test_augmentation_of_a_setting_that_flips(words, augment, padding):
    _, config = config_of(parse(f"--setting cifar10-s5 {words}"))
    assert (config.augment, config.crop_padding) == (augment, padding)
    check_data(config)


@pytest.mark.parametrize(
    ("words", "partition", "classes", "alpha"),
    [
        ("--setting digits-s2 --dirichlet 0.3", "dirichlet", 2, 0.3),
        ("--setting digits-s2 --classes-per-client 3", "distinct", 3, 0.0),
        ("--setting digits-dir0.3 --classes-per-client 3", "distinct", 3, 0.0),
        ("--setting digits-dir0.3 --classes-per-client 3 --partition shards", "shards", 3, 0.0),
        ("--setting digits-dir0.3 --dirichlet 1", "dirichlet", 2, 1.0),
        ("--setting digits-dir0.3 --partition iid", "iid", 2, 0.0),
        ("--setting cifar10-s5 --partition iid", "iid", 2, 0.0),
    ],
)
def test_partition_follows_its_flags(words, partition, classes, alpha):
    _, config = config_of(parse(words))
    assert (config.partition, config.classes_per_client, config.dirichlet) == (partition, classes, alpha)


def test_the_same_split_by_other_flags_is_the_same_run():
    by_flags = config_of(parse("--setting cifar10-s5 --dirichlet 0.3"))[1]
    assert by_flags.identity == config_of(parse("--setting cifar10-dir0.3"))[1].identity
