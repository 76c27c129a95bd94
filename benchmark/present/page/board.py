"""The board: methods × settings over several results folders and bundles, as one static page."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from pfl_benchmark import __version__
from pfl_benchmark.config.fields import changes, in_words, nearest_setting, setting_in_words
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.errors import UserError
from pfl_benchmark.present.page.command import command
from pfl_benchmark.present.page.mixtures import UNKNOWN
from pfl_benchmark.records.bundle import Bundle, read_verdicts
from pfl_benchmark.records.record import Record
from pfl_benchmark.records.seal import DIFFERENT, DRIFTED
from pfl_benchmark.records.store import family
from pfl_benchmark.render.forms import percent, size
from pfl_benchmark.render.markup import template
from pfl_benchmark.render.table import Head
from pfl_benchmark.resolve.run import method_label

_HERE = Path(__file__).resolve().parent
_SHORT = 12  # digits of a checksum that are shown
# Fields that belong to a row, not to the setting: what a method may be tuned in.
_OF_METHOD = ("lr", "tuning_trials")
_OF_SETTING = tuple(name for name in RunConfig.__dataclass_fields__ if name not in _OF_METHOD)
_HEADS = (
    *(Head(text, words=True) for text in ("method", "setting", "source")),
    *map(Head, ("seeds", "accuracy", "worst 10 %", "macro-F1", "AUC", "bytes", "samples")),
    Head("verified", words=True),
)


@dataclass(frozen=True)
class Source:
    """Where records of a board come from.

    Attributes:
        name: of the folder or bundle, as it was given.
        digest: SHA-256 of the bundle; empty for a folder.
        verdicts: what `verify` found, by the record's folder. For bundles these are the verdicts in the file
            beside it: what a bundle says of itself is no verification.
    """

    name: str
    digest: str
    records: Sequence[Record]
    verdicts: Mapping[str, Mapping[str, Any]]
    left_out: Sequence[str] = ()

    @property
    def different(self) -> int:
        """How many records were verified and found different."""
        return sum(verdict["verdict"] == DIFFERENT for verdict in self.verdicts.values())


def source_of_folder(name: str, records: Sequence[Record], left_out: Sequence[str]) -> Source:
    """A results folder."""
    verdicts = {record.folder.name: record.verified for record in records if record.verified}
    return Source(name, "", records, verdicts, left_out)


def source_of_bundle(name: str, bundle: Bundle) -> Source:
    """A bundle, which has to be unpacked until the board is made."""
    return Source(name, bundle.digest, bundle.records, read_verdicts(bundle))


@dataclass(frozen=True, eq=False)
class _Number:
    """What stands in one cell: a method's runs on a setting, which differ in their seeds.

    Attributes:
        place: in the list of numbers.
    """

    place: int
    method: str
    setting: str
    source: Source
    records: Sequence[Record]

    @property
    def accuracy(self) -> float:
        return fmean(record.summary["accuracy"] for record in self.records)

    def _figure(self, name: str) -> tuple[str, float] | None:
        """A mean in % and as a number; None where a record does not have it."""
        if any(name not in record.summary for record in self.records):
            return None
        mean = fmean(record.summary[name] for record in self.records)
        return percent(mean), mean

    @property
    def diverged(self) -> bool:
        """Whether the training of a run ended far above the loss of guessing."""
        return any(record.diverged for record in self.records)

    @property
    def sound(self) -> bool:
        """Whether it may be the best: no run diverged, and none was verified and found different."""
        return not self.diverged and self.state != "different"

    @property
    def figures(self) -> tuple[tuple[str, float] | None, ...]:
        """Texts and values of the columns between source and state."""
        sent = fmean(record.bytes_sent for record in self.records)
        samples = fmean(r.summary["samples"] + r.summary["adaptation_samples"] for r in self.records)
        spread = f" ± {self.spread}" * bool(self.spread) + " §" * self.diverged
        return (
            (str(len(self.records)), len(self.records)),
            (percent(self.accuracy) + spread, self.accuracy),
            *(self._figure(name) for name in ("accuracy_worst10", "macro_f1", "auc")),
            (size(sent), sent),
            (f"{samples:,.0f}", samples),
        )

    @property
    def spread(self) -> str:
        values = [record.summary["accuracy"] for record in self.records]
        return percent(stdev(values)) if len(values) > 1 else ""

    def verdict(self, record: Record) -> Mapping[str, Any]:
        """What `verify` found of a record; empty if nothing."""
        return self.source.verdicts.get(record.folder.name, {})

    @property
    def state(self) -> str:
        """``verified``, ``partly``, ``drifted``, ``different`` or, if nothing was verified, ``no``."""
        found = [self.verdict(record).get("verdict") for record in self.records]
        if DIFFERENT in found:
            return "different"
        if DRIFTED in found:
            return "drifted"
        return "verified" if all(found) else "partly" if any(found) else "no"


def board_page(sources: Sequence[Source]) -> str:
    """The page, which needs no network; the sources have different names."""
    columns = _columns(record for source in sources for record in source.records)
    numbers = _numbers(sources, columns)
    # Under a budget, runs that come to the configured rounds are those of equal rounds, of another column.
    whole = [number for number in numbers if number.records[0].config.budget == "rounds" and number.sound]
    best: dict[str, float] = {}
    for number in whole:
        best[number.setting] = max(number.accuracy, best.get(number.setting, 0.0))
    rows: dict[tuple[str, str], dict[str, _Number]] = defaultdict(dict)
    for number in numbers:
        rows[number.method, number.source.name][number.setting] = number
    return template(_HERE / "board.html").render(
        name="board",
        version=__version__,
        style=(_HERE / "page.css").read_text(encoding="utf-8"),
        script="".join((_HERE / name).read_text(encoding="utf-8") for name in ("page.js", "board.js")),
        sources=sources,
        settings=sorted({number.setting for number in numbers}, key=_by_use(numbers)),
        best=best,
        rows=rows,
        heads=_HEADS,
        numbers=numbers,
        usual=_usual_splits(numbers),
        made=_made,
        verified=_verified,
        command=command,
    )


def _columns(records: Iterable[Record]) -> dict[str, str]:
    """The setting of every record in words, by the record's digest; other copies of the data are others."""
    found = {record.digest: record for record in records}
    words = {digest: setting_in_words(record.config, _OF_SETTING) for digest, record in found.items()}
    copies: dict[str, set[str]] = defaultdict(set)
    for digest, record in found.items():
        copies[words[digest]].add(record.data.checksum)
    for digest, record in found.items():
        if len(copies[words[digest]] - {""}) > 1:
            words[digest] += f", data {record.data.checksum or UNKNOWN}"
    return words


def _numbers(sources: Sequence[Source], columns: Mapping[str, str]) -> list[_Number]:
    """All cells, by method, setting and source."""
    families: dict[tuple[str, str, int], dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for place, source in enumerate(sources):
        for record in source.records:
            found = families[_method(record.config), columns[record.digest], place]
            found[family(record.config)].append(record)
    groups = {  # names of many hyper-parameters are cut
        (f"{method}, {name[:6]}" if len(found) > 1 else method, setting, place): records
        for (method, setting, place), found in families.items()
        for name, records in found.items()
    }
    return [
        _Number(place, method, setting, sources[source], sorted(found, key=lambda run: run.config.seed))
        for place, ((method, setting, source), found) in enumerate(sorted(groups.items()))
    ]


def _method(config: RunConfig) -> str:
    """A row's name: method, variant, and what else belongs to the method, from the configuration alone."""
    try:
        words = [method_label(config)]
    except UserError:  # a plugin's, or of another version
        words = [config.algo, *(f"{name}={value}" for name, value in sorted(config.hyper.items()))]
    own = changes(nearest_setting(config, _OF_SETTING), config, _OF_METHOD)
    return ", ".join([*words, *(in_words(*item) for item in own.items())])


def _by_use(numbers: Sequence[_Number]) -> Any:
    """An order of settings: those with most methods first, validation splits behind the others."""
    used = Counter(number.setting for number in numbers)
    held_out = {number.setting for number in numbers if number.records[0].config.validation}
    return lambda setting: (setting in held_out, -used[setting], setting)


def _usual_splits(numbers: Sequence[_Number]) -> dict[tuple[str, int], str]:
    """The split that most records of a setting and seed have."""
    found: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for number in numbers:
        for record in number.records:
            found[number.setting, record.config.seed][record.split] += 1
    return {key: splits.most_common(1)[0][0] for key, splits in found.items()}


def _made(record: Record) -> str:
    """With what a run was made."""
    made = record.summary["environment"]
    words = [f"commit {made.get('commit') or UNKNOWN}", f"code {str(made.get('code') or UNKNOWN)[:_SHORT]}"]
    words += [str(made.get(name) or UNKNOWN) for name in ("device", "executor")]
    plugins = [f"plugins {made['plugins']}"] if made.get("plugins") else []
    return ", ".join([*words, *plugins])


def _verified(verdict: Mapping[str, Any]) -> str:
    """What a verdict says, by whom and with which code; empty if there is none."""
    if not verdict:
        return ""
    made = verdict["environment"]
    code = f"commit {made.get('commit') or UNKNOWN}, code {verdict['code'][:_SHORT]}"
    rounds = f"rounds 1-{verdict['rounds']} of {verdict['of']}"
    return f"{verdict['verdict']}, {rounds}, by {verdict.get('by') or 'somebody not named'} with {code}"
