"""The command `stages` and its figure, on the record of a real PPFE run."""

import json
import shutil

import pytest
from PIL import Image

from pfl_benchmark.cli import main
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.errors import UserError
from pfl_benchmark.papers.ppfe.commands.stages import read_stages
from pfl_benchmark.papers.ppfe.figures.stage_record import stage_figure
from pfl_benchmark.records.seal import seal
from pfl_benchmark.records.store import named_record
from pfl_benchmark.resolve.run import with_hyper


@pytest.fixture(scope="session")
def record(unbroken):
    return unbroken("ppfe").folder


@pytest.fixture
def copy(record, tmp_path):
    """The record, to be damaged."""
    return shutil.copytree(record, tmp_path / record.name)


def rewrite(folder, name, content):
    """Change a file of a record on purpose."""
    (folder / name).write_text(json.dumps(content))
    seal(folder)


def test_the_figure_draws_the_diagnostics(record):
    stages = read_stages(named_record(record))
    figure = stage_figure(stages, "a run")
    accuracy, betas, effective = figure.axes
    drawn = {line.get_label(): [*line.get_ydata()] for line in accuracy.lines}
    assert len(drawn) == 4
    assert drawn["stage alone, test"] == [100 * stage["stage_test_accuracy"] for stage in stages]
    assert drawn["ensemble so far, train"] == [100 * stage["ensemble_train_accuracy"] for stage in stages]
    for axes, field in ((betas, "beta"), (effective, "effective_samples")):
        dots = [[*line.get_ydata()] for line in axes.lines]
        assert dots == [stage["clients"][field] for stage in stages]
    assert [label.get_text().split("\n")[0] for label in accuracy.get_xticklabels()] == ["1", "2", "3", "4"]


def test_the_table_tells_the_last_ensembles_accuracy_of_the_summary(record, tmp_path, capsys):
    assert main(["stages", str(record), "--out", str(tmp_path / "new" / "stages.png")]) == 0
    text = capsys.readouterr().out
    (line,) = [line for line in text.splitlines() if "ensemble, test" in line]
    summary = json.loads((record / "summary.json").read_text())
    assert f"{100 * summary['accuracy']:.2f} %" == " ".join(line.split("%")[3].split()) + " %"
    with Image.open(tmp_path / "new" / "stages.png") as image:
        assert image.width > 1000


def test_hindsight_is_told_where_the_record_has_it(copy, tmp_path, capsys):
    told = json.loads((copy / "diagnostics.json").read_text())
    for number, stage in enumerate(told["stages"], start=1):
        stage["hindsight_test_accuracy"] = 0.9 + number / 100
    told["stages"][-1]["hindsight_weights"] = [0.1, 0.2, 0.3, 0.4]
    rewrite(copy, "diagnostics.json", told)
    assert main(["stages", str(copy)]) == 0
    text = capsys.readouterr().out
    (line,) = [line for line in text.splitlines() if "hindsight, test" in line]
    assert [float(cell) for cell in line.split("%")[0:4] for cell in cell.split()[-1:]] == [91, 92, 93, 94]
    assert "(0.1, 0.2, 0.3, 0.4 after the last stage)" in " ".join(text.split())
    assert "…" not in text, "the table fits"
    for stage in told["stages"]:
        del stage["hindsight_test_accuracy"], stage["hindsight_weights"]
    rewrite(copy, "diagnostics.json", told)
    assert main(["stages", str(copy)]) == 0
    text = capsys.readouterr().out
    assert "hindsight, test" not in text
    assert "Hindsight:" not in text


@pytest.mark.parametrize("damage", [
    {"hindsight_test_accuracy": None}, {"hindsight_weights": ["a"]}, {"hindsight_weights": None},
], ids=str)  # fmt: skip
def test_damaged_hindsight_is_refused(damage, copy, capsys):
    told = json.loads((copy / "diagnostics.json").read_text())
    told["stages"][1].update(damage)
    rewrite(copy, "diagnostics.json", told)
    assert main(["stages", str(copy)]) == 2
    assert "tells of no stages" in capsys.readouterr().err
    assert not (copy / "stages.png").exists()


def test_the_same_record_gives_the_same_svg(record, tmp_path):
    for name in ("a.svg", "b.svg"):
        assert main(["stages", str(record), "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_unused_weights_are_said_to_be_unused(copy, tmp_path, capsys):
    config = json.loads((copy / "config.json").read_text())
    config["config"] = with_hyper(
        RunConfig.from_dict(config["config"]), {"reweight": False, "ensemble": "last"}
    )
    copy = copy.rename(copy.with_name(f"ppfe-{config['config'].hash}"))
    config["config"] = config["config"].to_dict()
    rewrite(copy, "config.json", config)
    assert main(["stages", str(copy)]) == 0
    assert (copy / "stages.png").exists()
    text = capsys.readouterr().out
    assert "computed but not used" in text
    assert "last stage alone" in text


def test_a_record_without_stages_is_refused(unbroken, tmp_path, capsys):
    assert main(["stages", str(unbroken("fedavg").folder)]) == 2
    error = capsys.readouterr().err
    assert "no stages" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: shutil.rmtree(folder), "there is no folder"),
        (lambda folder: [path.unlink() for path in folder.iterdir()], "is no record"),
        (lambda folder: [(folder / n).unlink() for n in ("diagnostics.json", "done")], "not finished"),
        (lambda folder: (folder / "diagnostics.json").write_text("{"), "not as it was sealed"),
        (lambda folder: rewrite(folder, "diagnostics.json", [1]), "diagnostics.json is no object"),
        (
            lambda folder: rewrite(folder, "diagnostics.json", {"stages": [{"stage": 1}]}),
            "tells of no stages",
        ),
        (lambda folder: rewrite(folder, "diagnostics.json", {"other": 1}), "tells of no stages"),
        (
            lambda folder: rewrite(folder, "diagnostics.json", {"stages": [{"stage": 1, "personal": []}]}),
            "does not tell 'rounds' of stage 1",
        ),
    ],
)
def test_bad_records_are_refused_in_one_line(copy, damage, message):
    damage(copy)
    with pytest.raises(UserError, match=message) as caught:
        read_stages(named_record(copy))
    assert "\n" not in str(caught.value)


def test_bad_output_is_refused_before_anything_is_read(tmp_path, capsys):
    assert main(["stages", str(tmp_path), "--out", "figure.docx"]) == 2
    assert ".png or .svg" in capsys.readouterr().err


def test_of_many_clients_the_figure_shows_quantiles(record):
    stages = read_stages(named_record(record))
    for stage in stages:
        stage["clients"] = {field: 50 * values for field, values in stage["clients"].items()}
    figure = stage_figure(stages, "a run")
    for axes in figure.axes[1:]:
        assert len(axes.lines) == 0
        assert len(axes.patches) == 2 * len(stages)
    assert any("light: 5 to 95 % of clients" in text.get_text() for text in figure.texts)
