"""From a run's configuration back to the command line that repeats it."""

from __future__ import annotations

import shlex

from pfl_benchmark.config.fields import as_typed, as_words, changes, nearest_setting
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.errors import UserError
from pfl_benchmark.resolve.run import differences


def command(config: RunConfig) -> str:
    """``python -m benchmark --algo … --setting … --seed …`` of this very run.

    Empty where flags cannot say it: no setting has its dataset, a callback has stopped it, a hyper-parameter
    is an empty list, or this code does not know the method any more, or not with these hyper-parameters.
    """
    setting = nearest_setting(config)
    if not setting or config.stop_after:
        return ""
    try:
        variants = differences(config)
    except UserError:
        return ""
    ablation = min(variants, key=lambda name: len(variants[name]))
    hyper = {name: as_typed(value) for name, value in variants[ablation].items()}
    if not all(hyper.values()):
        return ""
    words = ["python", "-m", "benchmark", "--algo", config.algo]
    words += ["--ablation", ablation] if ablation else []
    words += ["--setting", setting]
    for name, value in changes(setting, config).items():
        words += as_words(name, value) if name != "partition" else []
    if config.partition != SETTINGS[setting].values["partition"]:
        words += ["--partition", config.partition]
    for name, text in hyper.items():
        words += ["--set", f"{name}={text}"]
    return shlex.join([*words, "--seed", str(config.seed)])
