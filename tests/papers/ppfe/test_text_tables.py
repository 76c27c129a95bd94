"""What tables say of the text column: a method that is not defined there, and extra traffic."""

import json

import pytest
from printed_tables import printed_frame
from record_folders import amend, write_record

from benchmark.present.tables import make_tables
from benchmark.records.store import Store
from benchmark.studies.catalogue import PROFILES, STUDIES
from benchmark.studies.grid import configure
from benchmark.studies.results import collect

QUICK = PROFILES["quick"]


@pytest.fixture
def folder(tmp_path):
    """FedAvg and PPFE in all columns of the communication study; on the tweets PPFE sends a third more."""
    grid = STUDIES["communication"].grids["quick"]
    rows = {variant.algo: variant for variant in grid.variants}
    for column in grid.columns:
        fedavg, ppfe = (
            write_record(tmp_path, configure(rows[algo], column, QUICK)) for algo in ("fedavg", "ppfe")
        )
        if column.setting == "synth-tweets":
            sent = [round(1.325 * line["bytes_up"]) for line in lines_of(fedavg)]
            amend(ppfe / "rounds.jsonl", lambda lines, sent=sent: _send(lines, sent))
    return tmp_path


def _send(lines, sent):
    for line, count in zip(lines, sent, strict=True):
        line["bytes_up"] = count


def lines_of(record):
    return [json.loads(line) for line in (record / "rounds.jsonl").read_text().splitlines()]


def test_extra_traffic_is_not_hidden(folder):
    (table,) = make_tables(collect(STUDIES["communication"], QUICK, Store.scan(folder), None))
    assert "More is sent up than by FedAvg: PPFE on Synthetic tweets (20) (132.5 %)." in table.caption
    assert any("synthetic" in name.lower() for name in printed_frame(table)["setting"])


def test_where_a_method_is_not_defined(folder):
    for name in ("main", "communication"):
        table = make_tables(collect(STUDIES[name], QUICK, Store.scan(folder), None))[0]
        assert [note for note in table.notes if "not defined" in note] == [
            "pFedFDA is not defined for Synthetic tweets (20)"
        ]
