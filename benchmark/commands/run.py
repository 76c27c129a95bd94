"""``run``: one method, one setting, one seed."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from pfl_benchmark.config.fields import DATA_FIELDS, PROTOCOL_FIELDS
from pfl_benchmark.config.flags import add_config_flags, add_data, add_flag, add_method, path
from pfl_benchmark.console.terminal import duration, percent, shown_path
from pfl_benchmark.experiment.flags import add_execution, execution_of
from pfl_benchmark.render.forms import size
from pfl_benchmark.track.flags import add_tracking, tracking_of

HELP = "one method on one setting with one seed (the default command)"
USAGE = "--algo METHOD [--setting NAME] [flags]"
EXAMPLES = """\
  python -m benchmark --algo fedrep --dataset digits       seconds, and no download
  python -m benchmark --algo ppfe                          the paper's first column, CIFAR-10 (100, 2)
  python -m benchmark --algo ppfe --ablation no-reduction --seed 1
  python -m benchmark --algo ditto --set lam=0.1 --setting cifar10-dir0.3
  python -m benchmark --algo fedavg --dataset digits --dirichlet 0.1 --rounds 20 --lr 0.05
  python -m benchmark --algo fedavg --dataset digits --json | tail -n 1 | jq .accuracy

A finished run is not repeated. The same command continues an interrupted run from its checkpoint."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    text = "required; `python -m benchmark list methods` names them"
    add_method(parser.add_argument_group("method"), None, text)
    add_data(parser, DATA_FIELDS)
    add_config_flags(parser.add_argument_group("protocol"), PROTOCOL_FIELDS)
    add_execution(parser.add_argument_group("execution"))
    add_tracking(parser.add_argument_group("tracking"))
    output = parser.add_argument_group("output")
    add_flag(output, "--results-dir DIR", "folder of the records (default: results/runs)", path)
    text = "keep the logits of all test samples with the record (predictions.npz, float16)"
    add_flag(output, "--save-predictions", text)
    text = "keep the final models with the record (models.safetensors; needs the package safetensors)"
    add_flag(output, "--save-models", text)
    add_flag(output, "--json", "print the summary as one JSON object instead of a table")


def execute(arguments: argparse.Namespace) -> None:
    """Carry out the run and print its summary."""
    from pfl_benchmark.resolve.run import configure

    setting, asked = configure(arguments)

    from pfl_benchmark.experiment.runner import run_single

    execution = dataclasses.replace(execution_of(arguments), trackings=tracking_of(arguments))
    summary = run_single(setting, asked, execution)
    summary["record"] = shown_path(summary["record"])
    print(json.dumps(summary) if arguments.json else _table(summary, asked.config.validation))


def _details(summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Further scores, which records of older versions do not have."""
    clients = summary.get("auc_clients")
    known = f"one class against the rest, mean over {clients} clients with two classes or more"
    told = {
        "macro_f1": ("  macro-F1", "of the classes that a client has, mean over clients"),
        "auc": ("  AUC", known),
        "global_accuracy": ("  global test", "the shared model on the test samples of all clients"),
    }
    rows = [(head, percent(summary[name]), text) for name, (head, text) in told.items() if name in summary]
    if drift := summary.get("drift"):
        back = drift["recovery"]
        again = "not reached again" if back is None else f"reached again after {back} round{'s' * (back > 1)}"
        about = f"after round {drift['round']}, from which on data differ; before {percent(drift['before'])}"
        rows.append(("  drift", percent(drift["after"]), f"{about}, {again}"))
    if new := summary.get("new_clients"):
        about = f"{new['clients']} clients that took no part in training"
        about += f", {new['samples']:,} samples trained on"
        rows.append(("new clients", percent(new["accuracy"]), about))
    return rows


def _table(summary: Mapping[str, Any], validation: float) -> str:
    from pfl_benchmark.records.environment import foreign_rounds

    whose = {"global": "the global model", "personal": "each client's personal model"}[summary["evaluated"]]
    trained = f"{summary['samples']:,} samples trained on"
    if summary["adaptation_samples"]:
        trained += f"; {summary['adaptation_samples']:,} more to adapt the final model"
    tested = "training samples that were held out" if validation else "all test samples"
    taken = summary.get("shared_rounds", 0)
    in_all = "seconds of training and evaluation"
    in_all += f"; {taken} rounds were taken over from another run, with their seconds" if taken else ""
    rows = [
        ("accuracy", percent(summary["accuracy"]), f"{whose} after round {summary['rounds']}, {tested}"),
        ("  unweighted", percent(summary["accuracy_unweighted"]), "mean over clients"),
        ("  worst 10 %", percent(summary["accuracy_worst10"]), "mean over the clients that fare worst"),
        ("  spread", percent(summary["accuracy_std"]), "standard deviation over clients"),
        *_details(summary),
        ("bytes up", size(summary["bytes_up"]), "clients to server"),
        ("bytes down", size(summary["bytes_down"]), "server to participants"),
        ("broadcast", size(summary["bytes_broadcast"]), "server to everyone, when a stage or the run ends"),
        ("samples/s", f"{summary['samples_per_second']:,.0f}", trained),
        ("time", duration(summary["seconds"]), f"{summary['seconds']:.1f} {in_all}"),
    ]
    if (plan := summary["budget"])["set_by"] != "rounds":
        bounds = {"compute": "local computation (--compute-cap), not the bytes,"}
        bound = bounds.get(plan["set_by"], f"the {plan['set_by']}")
        spent, limit = plan["planned"], plan["limit"]
        samples = plan["set_by"] == "samples"
        used = f"{spent:,} of {limit:,}" if samples else f"{size(spent)} of {size(limit)}"
        rows.append(("rounds", str(summary["rounds"]), f"as many as {bound} allow: {used}"))
    width = max(len(value) for _, value, _ in rows)
    lines = [f"{name:<14}{value:>{width}}   {meaning}" for name, value, meaning in rows]
    lines += [f"{'origin':<14}{stretch}" for stretch in foreign_rounds(summary.get("origins", ()))]
    return "\n".join([*lines, f"{'record':<14}{summary['record']}"])
