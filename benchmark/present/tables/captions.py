"""Captions: what a table is, which figure was chosen, over which seeds, weighted how, of how many clients."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from statistics import fmean

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.records.record import FAR
from pfl_benchmark.records.store import Record
from pfl_benchmark.studies.results import Place, Results

SELECTION = "after the last round (never the best round)"
ACCURACY = f"Test accuracy in % {SELECTION}, clients weighted by their test samples."
TEST = "paired two-sided Wilcoxon signed-rank test over clients and seeds"
BEST = f"{TEST} between the best and every other method of a setting, Holm-corrected within the setting"
TIED = f"†: not significantly worse than the best (p ≥ 0.05; {BEST})."
DEPENDENT = "clients of a seed share a server, so they are not independent of each other"


def caption(results: Results, *parts: str, spread: bool = True) -> str:
    """The profile's warning, `parts`, seeds (`spread`: with means and deviations over them), protocol."""
    words = [results.profile.warning, *parts, tuned(results), seeds(results, spread), protocol(results)]
    return " ".join(word for word in words if word)


def seeds(results: Results, spread: bool = True) -> str:
    """Over which seeds figures are taken."""
    found = results.seeds
    if not found:
        return "No record yet."
    if len(found) == 1:
        return f"One seed ({found[0]})."
    words = "Mean ± sample standard deviation over the seeds" if spread else "Seeds"
    return f"{words} {', '.join(map(str, found))}."


def tuned(results: Results) -> str:
    """Rows whose hyper-parameters were chosen by trials on a validation split, and how many."""
    rows: dict[str, set[int]] = {}
    for (row, _), config in results.configs.items():
        if config.tuning_trials:
            rows.setdefault(row, set()).add(config.tuning_trials)
    told = [f"{row} ({_range(trials)} trials)" for row, trials in rows.items()]
    return f"Tuned on a validation split: {', '.join(told)}." if told else ""


def common(results: Results) -> tuple[str, ...]:
    """The sentences of captions that most tables of a profile have, each kind in its place."""
    about = _protocol(_configs(results)) or ("", "", "")
    return (results.profile.warning, ACCURACY, seeds(results), *about, TIED)


def protocol(results: Results) -> str:
    """Clients, participation, rounds, split, augmentation and dropout; where there are records, of these."""
    configs = _configs(results)
    text = " ".join(_protocol(configs))
    held_out = [100 * config.validation for config in configs if config.validation]
    if held_out:
        where = "" if len(held_out) == len(configs) else ", in some runs"
        text += (
            f" Instead of test samples{where}: {_range(held_out)} % of each client's training samples, "
            "held out of training."
        )
    return text


def sampled(configs: Iterable[RunConfig]) -> str:
    """Where evaluations on the way are of some clients alone: a sentence that says so, and of how many."""
    counts = [config.eval_clients for config in configs]
    some = [count for count in counts if count]
    if not some:
        return ""
    where = "" if len(some) == len(counts) else ", in some runs"
    return f"Evaluations before the last one: in a sample of {_range(some)} clients{where}."


def sampled_in(results: Results) -> str:
    """As `sampled`, of the runs behind a table or figure."""
    return sampled(_configs(results))


def last_rounds(results: Results) -> str:
    """Who takes part in the last rounds, as a sentence."""
    found = {config.everyone_ends for config in _configs(results)}
    if found == {False}:
        return "The last round has as many participants as any other."
    return f"Everyone takes part in the last round{', in some runs' if False in found else ''}."


def _configs(results: Results) -> list[RunConfig]:
    return [results.configs[place] for place in results.records] or list(results.configs.values())


def _protocol(configs: Sequence[RunConfig]) -> tuple[str, ...]:
    """Size, split and images, which together are a sentence; empty without runs."""
    if not configs:
        return ()
    clients = _range(config.clients for config in configs)
    share = _range(round(100 * config.participation, 6) for config in configs)
    rounds = _range(config.rounds for config in configs)
    many = len({config.shift for config in configs}) > 2  # then settings are named after them
    split = " or ".join(sorted({config.partition if many else _split(config) for config in configs}))
    split += ", shifts by setting" * many
    images = " or ".join(sorted({augmentation(config) for config in configs}))
    others = sorted({config.budget for config in configs} - {"rounds"})
    fitted = f" or as many as equal {' or '.join(others)} allow" if others else ""
    ordinary = [config for config in configs if not config.everyone_ends]
    where = "in some runs " if len(ordinary) < len(configs) else ""
    last = f" ({where}also in the last one)" if ordinary else ""
    size = f"{clients} clients, {share} % of them in a round{last}, {rounds} rounds{fitted};"
    return size, f"split: {split};", f"{images}{_dropout(configs)}."


def _split(config: RunConfig) -> str:
    """The partition, and what becomes of clients' samples under it."""
    shifts = " and ".join(shift.describe() for shift in config.shifts)
    return f"{config.partition} ({shifts})" if shifts else config.partition


def costs(results: Results) -> str:
    """Costs of rows that train or send more than FedAvg, on the column with most of them."""
    most: dict[str, list[str]] = {}
    reference = where = ""
    for column in results.columns:
        fedavg = _cost([*results.fedavg[column].values()])
        rows: dict[str, list[str]] = {}
        for variant in results.grid.variants:
            own = _cost(results.at(variant.title, column))
            if fedavg and own and any(a > 1.005 * b for a, b in zip(own, fedavg, strict=True)):
                rows.setdefault(_amounts(own), []).append(variant.title)
        if fedavg and rows and sum(map(len, rows.values())) > sum(map(len, most.values())):
            most, reference, where = rows, _amounts(fedavg), column
    if not most:
        return ""
    dearer = "; ".join(f"{' / '.join(titles)} {amounts}" for amounts, titles in most.items())
    return f"Million training samples and GB sent in all directions on {where}: FedAvg {reference}; {dearer}."


def _amounts(cost: tuple[float, float]) -> str:
    return f"{cost[0]:.2f} and {cost[1]:.2f}"


def _cost(records: Sequence[Record]) -> tuple[float, float] | None:
    """Samples trained on in millions, fine-tuning included, and GB in all directions; means over seeds."""
    if not records:
        return None
    sums = [record.summary for record in records]
    samples = fmean(own["samples"] + own["adaptation_samples"] for own in sums)
    return samples / 1e6, fmean(record.bytes_sent for record in records) / 1e9


def _dropout(configs: Sequence[RunConfig]) -> str:
    """By dataset, where there is any."""
    datasets = dict.fromkeys(config.dataset for config in configs if config.dropout)
    rates = {name: _range(c.dropout for c in configs if c.dataset == name) for name in datasets}
    return "".join(f"; dropout {rate} on {name}" for name, rate in rates.items())


def augmentation(config: RunConfig) -> str:
    """What is done to training images, in words."""
    if not config.augment:
        return "no augmentation"
    return "flips and crops" if config.crop_padding else "flips"


def notes(results: Results) -> tuple[str, ...]:
    """What is peculiar to single runs: fewer seeds than the others, or why there is no record."""
    lines = []
    most = max(map(len, results.records.values()), default=0)
    short = [place for place, found in results.records.items() if len(found) < most]
    marked = [p for p in results.records if lacks_seeds(results, *p)]
    if marked:
        lines.append(f"‡ fewer seeds than others of the setting: {_places(results, marked)}")
    if rest := [place for place in short if place not in marked]:
        lines.append(f"fewer seeds: {_places(results, rest)}")
    return (*lines, *absent(results))


def divergence(results: Results) -> tuple[str, ...]:
    """Which rows with records diverged: a record itself (`Record.diverged`), or a seed that has none."""
    ended = [place for place in results.records if results.diverged(*place)]
    text = f"§ training diverged, its loss in the last round is above {FAR} times that of guessing"
    lines = [f"{text}: {_places(results, ended)}"] if ended else []
    if stopped := [place for place in results.records if place in results.failed and place not in ended]:
        lines.append(f"§ training diverged with another seed: {_places(results, stopped)}")
    return tuple(lines)


def lacks_seeds(results: Results, row: str, column: str) -> bool:
    """Whether a place has records, but not of all seeds of which another row of the column has one."""
    others = (found for place, found in results.records.items() if place[1] == column)
    return 0 < len(results.at(row, column)) < len(set().union(*others))


def absent(results: Results) -> tuple[str, ...]:
    """Why there is no record of single runs, other than that nobody has run them."""
    rows, columns = {row for row, _ in results.configs}, {column for _, column in results.configs}
    lines = []
    for place, found in results.failed.items():
        if place in results.records:
            told = [f" with seed {seed}: {why.split(';')[0]}" for seed, why in found.items()]
        else:
            told = [f": {reason(results, place)}"]
        lines += [f"no record of {' on '.join(place)}{words}" for words in told]
    lines += [f"{column} is not part of this version" for column in results.columns if column not in columns]
    for column, row in itertools.product(results.columns, results.rows):
        if row in rows and column in columns and (row, column) not in results.configs:
            lines.append(f"{row} is not defined for {column}")
    return tuple(lines)


def reason(results: Results, place: Place) -> str:
    """Why a place has no record, in a few words; empty where it has one."""
    if results.at(*place):
        return ""
    if place in results.failed:
        return [*results.failed[place].values()][-1].split(";")[0]
    return "no record" if place in results.configs else "not defined here"


def _places(results: Results, places: Sequence[Place]) -> str:
    """``all on A (seed 0); Ditto / FedPer on B (seeds 0, 1)``: a column at a time.

    Where that is shorter, it names the rows that are not meant: ``all but FedAvg on A (seed 0)``.
    """
    rows: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for row, column in sorted(places, key=lambda place: results.columns.index(place[1])):
        rows.setdefault((column, tuple(results.records[row, column])), []).append(row)
    texts = []
    for (column, found), some in rows.items():
        others = [place[0] for place in results.records if place[1] == column and place[0] not in some]
        names = " / ".join(some)
        if len(some) > 1 and len(others) < len(some):
            names = f"all but {' / '.join(others)}" if others else "all"
        texts.append(f"{names} on {column} (seed{'s' * (len(found) > 1)} {', '.join(map(str, found))})")
    return "; ".join(texts)


def _range(values: Iterable[float]) -> str:
    found = sorted(set(values))
    return f"{found[0]:g}" if len(found) == 1 else f"{found[0]:g} to {found[-1]:g}"
