"""``bound``: the terms of the paper's generalisation bound for a method's real architecture."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pfl_benchmark.config.fields import DATA_FIELDS, describe_split
from pfl_benchmark.config.flags import add_data, add_flag, add_method, number
from pfl_benchmark.console.terminal import open_table, percent
from pfl_benchmark.errors import UserError

if TYPE_CHECKING:
    from pfl_benchmark.config.run_config import RunConfig
    from pfl_benchmark.papers.ppfe.bound import Bound

HELP = "the terms of the paper's generalisation bound for a method's real architecture"
USAGE = "[--algo METHOD] [--setting NAME] [flags]"
EXAMPLES = """\
  python -m benchmark bound --setting cifar100-s5
  python -m benchmark bound --setting cifar100-s5 --ablation no-reduction
  python -m benchmark bound --setting cifar10-s2 --ablation width --set width_alpha=0.5"""

_COMPARED = ("ppfe", "fedavg", "fedper", "local")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_method(parser.add_argument_group("method"), "ppfe", "method (default: ppfe)")
    add_data(parser, (*(name for name in DATA_FIELDS if name != "shift"), "rounds", "seed"))
    bound = parser.add_argument_group("bound")
    text = "probability ζ that the bound may fail with (default: 0.05)"
    add_flag(bound, "--zeta X", text, number("(0, 1)", 0.05), default=0.05)
    text = (
        "corollary: personal widths of stage t are W·t^(−α) (default: what the method's own width reduction "
        "has, else 0)"
    )
    add_flag(bound, "--alpha X", text, number("[0, 1)", 0.25))  # at 1 the proof divides by 2 − 2α = 0
    output = parser.add_argument_group("output")
    add_flag(output, "--json", "print one JSON object instead of the tables")


def execute(arguments: argparse.Namespace) -> None:
    """Print the terms, stage by stage, and the totals of some other methods beside them."""
    from pfl_benchmark.resolve.run import configure

    setting, run = configure(arguments)
    config = run.config

    from pfl_benchmark.papers.ppfe.bound import bound_of, capacities_of, corollary, sizes_of

    sizes = sizes_of(config, arguments.data_dir)
    label = run.label
    found = {
        name: bound_of(capacities_of(other), sizes.train, arguments.zeta)
        for name, other in {label: config, **_others(config, label)}.items()
    }
    own, depth = found[label], len(run.plain.layers)
    alpha = _alpha(config) if arguments.alpha is None else arguments.alpha
    rates = corollary(depth, len(own.stages), own.clients, own.samples, alpha, own.zeta)
    if arguments.json:
        special = {**dataclasses.asdict(rates), "alpha": alpha, "depth": depth, "stages": len(own.stages)}
        facts = {"method": label, "setting": setting, "seed": config.seed, "sizes": sizes.source}
        print(json.dumps({**facts, **_facts(own, found), "corollary": special}))
        return

    from pfl_benchmark.console.terminal import show

    few, many = min(sizes.train), max(sizes.train)
    show(
        Text(f"Generalisation bound of {label} on {setting}, seed {config.seed}", "bold"),
        f"  {describe_split(config)}",
        f"  K = {own.clients:,}, harmonic mean of n_k = {own.samples:,.2f}",
        f"  n_k {f'= {few:,}' if few == many else f'{few:,} to {many:,}'}, {sizes.source}",
        "",
        _indented(_stages(own)),
        "",
        f"  bracket     sqrt(log(K n)/n) · sqrt(sum)  {own.bracket:>10.4g}",
        f"  confidence  sqrt(log(2/ζ)/(2 K n))        {own.confidence:>10.4g}   (ζ = {own.zeta:g})",
        "",
        Text("Beside other methods in the same setting", "bold"),
        _indented(_methods(found)),
        "",
        Text(f"Corollary, personal widths W·t^(−α), α = {alpha:g}, without its factor W + 1", "bold"),
        f"  shared      sqrt(L T/(K n))               {rates.shared:>10.4g}   "
        f"(L = {depth} layers, T = {len(own.stages)})",
        f"  confidence  sqrt(log(1/ζ)/(K n))          {rates.confidence:>10.4g}",
        f"  personal    T^(1−α)/sqrt(n)               {rates.personal:>10.4g}",
        f"  boosting    sqrt(T/n)                     {rates.boosting:>10.4g}",
        "",
        *_remarks(label, own),
    )


def _others(config: RunConfig, label: str) -> dict[str, RunConfig]:
    """The methods to compare with, by their defaults, where they can be run here."""
    from pfl_benchmark.resolve.run import resolve

    found = {}
    for name in _COMPARED:
        with contextlib.suppress(UserError):  # few rounds are enough for some methods, but not for stages
            found[name] = resolve(dataclasses.replace(config, algo=name, hyper={})).config
    found.pop(label, None)
    return found


def _alpha(config: RunConfig) -> float:
    """The method's own α where it shrinks widths, else 0."""
    return float(config.hyper["width_alpha"]) if config.hyper.get("reduction") == "width" else 0.0


def _facts(own: Bound, found: dict[str, Bound]) -> dict[str, Any]:
    """The terms as JSON values."""
    stages = [
        {
            "stage": t,
            "shared": shared,
            "personal": personal,
            "shared_term": shared / own.clients,
            "personal_term": personal,
            "boosting_term": 1,
            "share_of_sum": (shared / own.clients + personal + 1) / own.sum,
        }
        for t, (shared, personal) in enumerate(own.stages, start=1)
    ]
    methods = {
        name: {
            "shared_term": sum(bound.shared),
            "personal_term": sum(bound.personal),
            "boosting_term": len(bound.stages),
            "sum": bound.sum,
            "bracket": bound.bracket,
        }
        for name, bound in found.items()
    }
    return {
        "clients": own.clients,
        "harmonic_mean": own.samples,
        "zeta": own.zeta,
        "confidence": own.confidence,
        "stages": stages,
        "methods": methods,
        "hidden": "constants and logarithmic factors of the theorem count as 1",
    }


# -- for people -----------------------------------------------------------------------------------------


def _indented(table: Table) -> Padding:
    return Padding(table, (0, 0, 0, 2))


def _table(*heads: str) -> Table:
    table = open_table()
    for head in heads:
        table.add_column(head, justify="left" if head == "method" else "right", no_wrap=True)
    return table


def _stages(bound: Bound) -> Table:
    """Parameters and terms of each stage; a personal parameter is a term of its own."""
    table = _table("stage", "shared", "1/K · shared", "personal", "T", "together", "share")
    for t, (shared, personal) in enumerate(bound.stages, start=1):
        term = shared / bound.clients
        together = term + personal + 1
        words = (f"{shared:,}", f"{term:,.2f}", f"{personal:,}", "1", f"{together:,.2f}")
        table.add_row(str(t), *words, percent(together / bound.sum))
    shared, personal = (sum(counts) for counts in zip(*bound.stages, strict=True))
    terms = (shared / bound.clients, personal, len(bound.stages))
    words = (f"{shared:,}", f"{terms[0]:,.2f}", f"{personal:,}", str(terms[2]), f"{bound.sum:,.2f}")
    table.add_row("sum", *words, "", style="bold")
    table.add_row("share", "", *(percent(term / bound.sum) for term in terms), "", "", style="dim")
    return table


def _methods(found: dict[str, Bound]) -> Table:
    table = _table("method", "T", "1/K · shared", "personal", "sum", "bracket", "over fedavg's")
    for name, bound in found.items():
        table.add_row(
            name,
            str(len(bound.stages)),
            f"{sum(bound.shared):,.2f}",
            f"{sum(bound.personal):,}",
            f"{bound.sum:,.2f}",
            f"{bound.bracket:,.4g}",
            f"{bound.bracket / found['fedavg'].bracket:.2f}",
        )
    return table


def _remarks(label: str, own: Bound) -> list[str]:
    """What the figures mean, and where an assumption of the paper does not hold."""
    lines = [
        "Hidden: the paper's Õ contains factors that are logarithmic in T, L, the Lipschitz constants and "
        "the bounds on the weights, and the bound B on the loss multiplies everything. All count as 1 here.",
        "The values are neither probabilities nor accuracies. Above 1 a bound says nothing (it is vacuous), "
        "which is usual for networks of this size: only comparisons between architectures mean something.",
        "Counted are the parameters that are trained, a convolution's kernel once, and running statistics of "
        "batch normalisation. Personal in stage t are the layers that the method keeps there; the theorem's "
        "own sum makes one more layer personal.",
    ]
    larger = [str(t) for t, (shared, personal) in enumerate(own.stages, start=1) if personal > shared > 0]
    if larger:
        lines.append(
            f"In stage {' and '.join(larger)} {label} has more personal than shared parameters: there the "
            "paper's premise, shared ≫ personal, does not hold."
        )
    return lines
