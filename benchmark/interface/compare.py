"""`compare_records`: paired tests between finished runs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from pfl_benchmark.errors import UserError
from pfl_benchmark.interface.load import Runs, records_of
from pfl_benchmark.present.compare import groups, row_in_numbers
from pfl_benchmark.records.record import Record
from pfl_benchmark.records.store import named_record
from pfl_benchmark.resolve.plugins import load_plugins


def compare_records(*runs: Runs, against: str | Path | Record | None = None) -> pd.DataFrame:
    """Compare finished runs as ``python -m benchmark compare`` does: client by client, on equal splits.

    Runs that differ only in their seed are one candidate.

    ```python
    compare_records(run("fedper", dataset="digits"), run("fedavg", dataset="digits"))
    ```

    Args:
        runs: results folders, folders of records, or records.
        against: the run (one of its records, or the folder of one) that all others are compared with; None:
            the best, in each setting, of those with the most seeds, which makes p somewhat too small.

    Returns:
        A row a candidate, by setting, the best first: ``setting``, ``title``, ``seeds``, ``accuracy`` and
        ``accuracy_std`` (over seeds), ``reference`` (its title), ``difference`` to it, ``standard_error``,
        ``pairs``, ``p``, ``p_holm`` (Wilcoxon tests over clients, Holm-corrected within the setting),
        ``verdict``, ``diverged`` (whether training of one of its runs did) and ``records``. The row of the
        reference has no difference.

    Raises:
        UserError: no two runs can be compared, `against` is not a single run, or a folder cannot be read.
    """
    load_plugins()
    if against is not None and not isinstance(against, Record):
        against = named_record(Path(against).expanduser())
    chosen = records_of((*runs, *([] if against is None else [against])))
    rows = []
    for group in groups(chosen):
        reference = group.best if against is None else group.find(against.folder)
        if reference is None or len(group.candidates) < 2:
            continue
        shared = {"setting": group.setting, "reference": reference.title}
        rows += [{**shared, "diverged": False, **row_in_numbers(row)} for row in group.rows(reference)]
    if not rows:
        raise UserError(
            "these runs cannot be compared: no two of them that differ in more than their seed have a seed "
            "and its split in common; give runs on the same setting"
        )
    return pd.DataFrame(rows, columns=_COLUMNS)


_COLUMNS = [
    "setting", "title", "seeds", "accuracy", "accuracy_std", "reference", "difference", "standard_error",
    "pairs", "p", "p_holm", "verdict", "diverged", "records",
]  # fmt: skip
