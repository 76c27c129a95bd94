"""How well the reduced scale predicts the paper's: what is compared with what."""

import pytest
from printed_tables import facts_frame
from record_folders import write_record

from pfl_benchmark.errors import UserError
from pfl_benchmark.papers.ppfe.studies.prediction import PREDICTION
from pfl_benchmark.papers.ppfe.studies.shared import METHODS, columns, rows
from pfl_benchmark.present.page.front import DocumentParts
from pfl_benchmark.records.store import Store
from pfl_benchmark.studies.catalogue import PROFILES
from pfl_benchmark.studies.grid import configure

LITE, PAPER = PROFILES["lite"], PROFILES["paper"]
LITE_SIX, LITE_DIRICHLET, SIX = map(columns, ("lite_six", "lite_dirichlet", "six"))
FEW = [row for row in METHODS if row.algo in ("local", "fedavg", "fedper", "ppfe")]


def tables_of(root):
    return PREDICTION.computed.make(LITE, Store.scan(root / "lite"))[0]


def write(root, column, papers, small, large):
    """Records of `FEW` in one column at both scales."""
    for row, low, high in zip(FEW, small, large, strict=True):
        write_record(root / "lite", configure(row, column, LITE), low)
        write_record(root / "paper", configure(row, papers, PAPER), high)


@pytest.mark.parametrize(
    ("large", "rho"), [((0.2, 0.4, 0.6, 0.8), 1), ((0.8, 0.6, 0.4, 0.2), -1), ((0.4, 0.2, 0.6, 0.8), 0.8)]
)
def test_the_correlation_is_that_of_the_ranks(tmp_path, large, rho):
    write(tmp_path, LITE_SIX[1], SIX[1], (0.1, 0.2, 0.3, 0.5), large)
    found = facts_frame(tables_of(tmp_path)[0])
    assert list(found["lite"]) == ["CIFAR-10 (20, 5)"]
    assert list(found["paper"]) == ["CIFAR-10 (100, 5)"]
    assert list(found["methods"]) == [4]
    assert list(found["spearman"]) == pytest.approx([rho])


def test_a_claim_is_compared_by_its_sign(tmp_path):
    with_reduction, without = rows("With MR", "Without MR")
    for folder, profile, column, gain in (
        ("lite", LITE, LITE_SIX[0], 0.1),
        ("paper", PAPER, SIX[0], -0.1),
        ("lite", LITE, LITE_SIX[2], 0.1),
        ("paper", PAPER, SIX[2], 0.2),
    ):
        write_record(tmp_path / folder, configure(without, column, profile), 0.5)
        write_record(tmp_path / folder, configure(with_reduction, column, profile), 0.5 + gain)
    found = facts_frame(tables_of(tmp_path)[1]).set_index("lite")
    assert dict(found["same_sign"]) == {"CIFAR-10 (20, 2)": False, "CIFAR-100 (20, 20)": True}
    assert found.loc["CIFAR-10 (20, 2)", "lite_difference"] > 5
    assert found.loc["CIFAR-10 (20, 2)", "paper_difference"] < -5


def test_without_records_at_one_scale_there_is_nothing(tmp_path):
    write_record(tmp_path / "lite", configure(METHODS[0], LITE_SIX[0], LITE), 0.5)
    assert tables_of(tmp_path) == []
    assert PREDICTION.computed.digest(Store.scan(tmp_path / "lite")) == ""


@pytest.mark.parametrize("name", ["prediction", "prediction-claims", "prediction-of-nothing"])
def test_documents_can_have_its_tables(name, tmp_path):
    write(tmp_path, LITE_SIX[1], SIX[1], (0.1, 0.2, 0.3, 0.5), (0.4, 0.2, 0.6, 0.8))
    text = f"<!-- table {name}: begin -->\n<!-- table {name}: end -->\n"
    (tmp_path / "A.md").write_text(text)
    parts = DocumentParts([tmp_path / "A.md"], LITE)
    if name == "prediction-of-nothing":
        with pytest.raises(UserError, match=f"no table {name}; made in .*: prediction, prediction-claims"):
            parts.make(Store.scan(tmp_path / "lite"))
        assert (tmp_path / "A.md").read_text() == text
        return
    parts.make(Store.scan(tmp_path / "lite"))
    parts.write(tmp_path / "lite")
    assert {"prediction": "| 0.80 |", "prediction-claims": "same sign"}[name] in " ".join(
        (tmp_path / "A.md").read_text().split()
    )


def test_every_reduced_column_differs_from_the_papers_in_scale_alone():
    for column in (*LITE_SIX[:5], *LITE_DIRICHLET):
        reduced = configure(METHODS[0], column, LITE)
        assert (reduced.clients, reduced.rounds, reduced.network) == (20, 40, "dataset")
    for column, papers in zip(LITE_SIX[:4], SIX[:4], strict=True):
        ours, theirs = (configure(METHODS[1], c, p) for c, p in ((column, LITE), (papers, PAPER)))
        for field in ("dataset", "partition", "classes_per_client", "dropout", "augment", "batch_size"):
            assert getattr(ours, field) == getattr(theirs, field)
