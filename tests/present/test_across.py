"""``compare --across`` on made-up records: blocks, figures, the diagram, what is refused."""

import dataclasses
import itertools
import json
from xml.etree import ElementTree

import numpy as np
import pytest
from answers import refused
from record_folders import amend, with_seed, write_record

from pfl_benchmark.cli import main
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.present.figures.critical import critical_differences
from pfl_benchmark.records.store import gather
from pfl_benchmark.studies.blocks import blocks_of
from pfl_benchmark.studies.friedman import critical_difference, friedman

CONFIG = RunConfig(
    dataset="digits", clients=20, samples_per_client=20, test_samples_per_client=40, rounds=4, seed=0
)
LEVELS = {"ditto": 0.8, "fedper": 0.65, "fedavg": 0.4}


def config_of(algo, seed=0, **changes):
    return with_seed(RunConfig(**{**CONFIG.to_dict(), "algo": algo, **changes}), seed)


def write_all(root, methods=LEVELS, rounds=(4, 5, 6), seeds=(0, 1)):
    """Settings that differ in their rounds; by method, setting and seed."""
    return {
        (algo, count, seed): write_record(root, config_of(algo, seed, rounds=count), LEVELS[algo])
        for algo, count, seed in itertools.product(methods, rounds, seeds)
    }


def accuracy(folder):
    return json.loads((folder / "summary.json").read_text())["accuracy"]


@pytest.fixture
def across(capsys):
    """Run the command; returns exit code, output and the error stream."""

    def go(*words):
        code = main(["compare", "--across", *map(str, words)])
        return code, *capsys.readouterr()

    return go


def numbers(answer):
    code, out, _ = answer
    assert code == 0
    return json.loads(out)


def test_figures_are_those_of_the_records(tmp_path, across):
    folders = write_all(tmp_path)
    told = numbers(across(tmp_path, "--json"))
    assert [(row["method"], row["rank"]) for row in told["methods"]] == [
        ("ditto", 1),
        ("fedper", 2),
        ("fedavg", 3),
    ]
    assert told["reference"] == "ditto"
    assert [(block["seed"], block["accuracies"]["ditto"]) for block in told["blocks"]] == [
        (seed, accuracy(folders["ditto", rounds, seed])) for rounds in (4, 5, 6) for seed in (0, 1)
    ]
    for row in told["methods"]:
        values = sorted(accuracy(folders[row["method"], *place]) for place in _places())
        assert row["iqm"] == pytest.approx(np.mean(values[1:-1]))  # 6 runs, a quarter of them is one
        low, high = row["iqm_interval"]
        assert min(values) <= low <= row["iqm"] <= high <= max(values)
    first, *others = told["methods"]
    assert (first["improvement"], first["p_holm"], first["verdict"]) == (None, None, "")
    assert [row["improvement"] for row in others] == [0, 0]
    assert [row["p_holm"] for row in others] == [3 * 2 / 2**3] * 2  # of one sign, three pairs
    assert told["friedman"]["p"] == pytest.approx(6.0**-2)  # the same order three times
    assert told["friedman"]["f"] is None
    assert (told["over"], told["friedman"]["blocks"]) == ("settings", 3)
    assert told["critical_difference"] == pytest.approx(critical_difference(3, 3))
    assert told["groups"] == [["ditto", "fedper"], ["fedper", "fedavg"]]
    assert (told["splits"], told["left_out"]) == (2, [])


def _places():
    return list(itertools.product((4, 5, 6), (0, 1)))


def test_over_settings_takes_means_over_seeds(tmp_path, across):
    """Three settings, whose order is another in either seed, and the same in their means."""
    for rounds, seed, algo in itertools.product((4, 5, 6), (0, 1), ("ditto", "fedper", "fedavg")):
        level = {"ditto": (0.6, 0.9), "fedper": (0.625, 0.5), "fedavg": (0.65, 0.4)}[algo][seed]
        write_record(tmp_path, config_of(algo, seed, rounds=rounds), shares=np.full(20, level))
    told = numbers(across(tmp_path, "--json"))
    means = np.array([[0.75, 0.5625, 0.525]] * 3)
    assert told["friedman"]["chi2"] == pytest.approx(friedman(means).chi2)
    assert [row["rank"] for row in told["methods"]] == [1, 2, 3]


def test_seeds_count_where_there_is_one_setting(tmp_path, across):
    for seed, algo in itertools.product((0, 1), ("ditto", "fedper", "fedavg")):
        level = {"ditto": (0.6, 0.9), "fedper": (0.625, 0.5), "fedavg": (0.65, 0.4)}[algo][seed]
        write_record(tmp_path, config_of(algo, seed, rounds=4), shares=np.full(20, level))
    told = numbers(across(tmp_path, "--json"))
    assert (told["over"], told["friedman"]["blocks"]) == ("seeds", 2)
    assert told["friedman"]["chi2"] == pytest.approx(0)  # two opposite orders


def test_a_reference_that_is_named_needs_less_correction(tmp_path, across):
    folders = write_all(tmp_path)
    told = numbers(across(tmp_path, "--against", folders["fedper", 5, 1], "--json"))
    assert told["reference"] == "fedper"
    assert len(told["wilcoxon"]) == 2
    rows = {row["method"]: row for row in told["methods"]}
    assert (rows["ditto"]["improvement"], rows["fedavg"]["improvement"]) == (1, 0)
    assert rows["ditto"]["p_holm"] == 2 * 2 / 2**3
    words = (tmp_path, "--against", folders["fedper", 5, 1], "--methods", "fedavg", "fedper", "--json")
    (row,) = [row for row in numbers(across(*words))["methods"] if row["method"] == "fedavg"]
    assert (row["p_holm"], row["verdict"]) == (2 / 2**3, "undecided")


def test_blocks_without_a_method_are_left_out_and_told(tmp_path, across):
    folders = write_all(tmp_path)
    (folders["fedavg", 5, 1] / "done").unlink()
    code, out, err = across(tmp_path)
    assert code == 0
    assert "3 methods on 5 blocks: 3 settings, seeds 0, 1" in out
    (line,) = [line for line in err.splitlines() if line.startswith("left out: digits-s2")]
    assert "rounds 5" in line
    assert line.endswith("seed 1: no record of fedavg")
    assert "note: no bootstrap intervals" in err  # one seed of a setting is left
    both = numbers(across(tmp_path, "--methods", "ditto", "fedper", "--json"))
    assert len(both["blocks"]) == 6
    assert (both["friedman"], both["critical_difference"], both["groups"]) == (None, None, [])


def test_settings_are_told_apart_by_the_configuration(tmp_path):
    """Folders have the same names but for the hash; fields that mean nothing do not count."""
    for lr, algo in itertools.product((0.1, 0.2), ("ditto", "fedper")):
        write_record(tmp_path, config_of(algo, lr=lr))
    write_record(tmp_path, config_of("fedavg", lr=0.1, augment=False, crop_padding=2))
    write_record(tmp_path, config_of("local", lr=0.1, augment=False, crop_padding=4))
    records = gather([tmp_path]).records
    found = blocks_of(records, ["ditto", "fedper"])
    assert len(found.blocks) == 2
    assert all("lr 0." in block.setting for block in found.blocks)
    assert found.splits == 1
    idle = blocks_of(records, ["fedavg", "local"])
    assert len(idle.blocks) == 1


def test_runs_on_held_out_samples_do_not_join_those_on_test_samples(tmp_path, across):
    write_all(tmp_path, rounds=(4,))
    tuned = [
        write_record(tmp_path, config_of(algo, seed, validation=0.2)) for algo in LEVELS for seed in (0, 1)
    ]
    code, out, err = across(tmp_path)
    assert code == 0
    assert "3 methods on 2 blocks" in out
    assert "validation 0.2, seed 1: evaluated on held-out training samples" in err
    assert len(numbers(across(*tuned, "--json"))["blocks"]) == 2


def test_blocks_of_different_splits_are_left_out(tmp_path, across):
    write_all(tmp_path, ("ditto", "fedper"))
    for seed in (0, 1):
        write_record(tmp_path, config_of("fedavg", seed), split="another" * seed)
    write_record(tmp_path, config_of("fedavg", 0, rounds=5))
    told = numbers(across(tmp_path, "--json"))
    assert [block["seed"] for block in told["blocks"]] == [0, 0]
    assert sum("its records have different splits" in line for line in told["left_out"]) == 1
    assert sum("no record of fedavg" in line for line in told["left_out"]) == 3


def test_what_limits_the_figures_is_told(tmp_path, across):
    write_all(tmp_path, rounds=(4, 5), seeds=(0,))
    write_record(tmp_path, config_of("ditto", 1))
    code, _, err = across(tmp_path)
    assert code == 0
    assert "note: 2 settings are too few for the Wilcoxon tests: the smallest possible p is 1.000" in err
    assert "note: 2 blocks have 1 splits" in err
    assert "note: no bootstrap intervals" in err


def test_other_hyper_parameters_under_one_name_are_told(tmp_path, across):
    """As where defaults are fitted to the network."""
    write_all(tmp_path, ("ditto", "fedper"), rounds=(4, 5), seeds=(0,))
    assert "hyper-parameters differ" not in across(tmp_path)[2]
    for lam, rounds in ((0.5, 6), (0.7, 7)):
        write_record(tmp_path, config_of("fedper", rounds=rounds))
        made = write_record(tmp_path, config_of("ditto", rounds=rounds, hyper={"lam": lam}))
        made.rename(tmp_path / f"ditto-{made.name[made.name.index('digits') :]}")
    code, _, err = across(tmp_path)
    assert code == 0
    assert "note: hyper-parameters differ between settings: ditto\n" in err


def test_bad_input(tmp_path, across, capsys):
    one = write_record(tmp_path, config_of("ditto"))
    two = write_record(tmp_path, config_of("fedper"))
    refused(across(one), "ditto is the only method here")
    refused(
        across(one, two), "only one setting and seed has usable runs", "blocks by method: ditto 1, fedper 1"
    )
    third = write_record(tmp_path, config_of("fedper", rounds=5))
    fourth = write_record(tmp_path, config_of("ditto", rounds=5))
    refused(across(tmp_path, "--methods", "dito", "fedper"), "unknown method 'dito'", "did you mean 'ditto'?")
    refused(across(tmp_path, "--methods", "ditto", "ditto"), "names a method twice")
    refused(across(tmp_path, "--methods", "ditto"), "only method")
    refused(across(tmp_path, "--against", tmp_path), "give the record of one run")
    refused(across(tmp_path, "--against", one, third), "runs of several methods (ditto, fedper)")
    fedavg = write_record(tmp_path, config_of("fedavg"))
    refused(
        across(tmp_path, "--methods", "ditto", "fedper", "--against", fedavg), "fedavg, which is not among"
    )
    picture = tmp_path / "out" / "cd.png"
    words = (one, two, third, fourth, "--out")
    refused(across(*words, picture.with_suffix(".gif")), "ends in .png or .svg or .pdf")
    refused(across(*words, picture), "needs three methods")
    assert not picture.parent.exists()
    refused(across(tmp_path / "nothing"), "there is no folder")
    code = main(["compare", str(tmp_path), "--methods", "ditto"])
    refused((code, *capsys.readouterr()), "--methods is only for comparisons over settings", "add --across")


def test_other_copies_of_the_data_are_refused(tmp_path, across):
    folders = write_all(tmp_path, ("ditto", "fedper"), rounds=(4, 5))
    for number, place in enumerate([("ditto", 4, 0), ("fedper", 4, 0)]):
        entry = {"data_checksum": f"{number:016x}"}
        amend(folders[place] / "config.json", lambda about, entry=entry: about["split"].update(entry))
    refused(across(tmp_path), "different copies of 'digits'")


def test_two_runs_of_a_method_in_one_block_are_refused(tmp_path, across):
    """Variants whose names are the same, as where a name was changed by hand."""
    write_all(tmp_path, ("ditto", "fedper"))
    other = write_record(tmp_path, dataclasses.replace(config_of("ditto"), hyper={"lam": 0.123}))
    other.rename(tmp_path / other.name.replace("-lam=0.123", ""))
    refused(across(tmp_path), "are of one method, setting and seed", "give one of them")


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_diagram_is_drawn(tmp_path, across, ending):
    write_all(tmp_path / "runs", rounds=(4, 5))
    out = tmp_path / "new" / f"ranks.{ending}"
    first = across(tmp_path / "runs", "--out", out)
    assert first[0] == 0
    content = out.read_bytes()
    if ending == "png":
        assert content.startswith(b"\x89PNG")
    else:
        assert ElementTree.fromstring(content).tag.endswith("svg")
    assert across(tmp_path / "runs", "--out", out) == first
    assert out.read_bytes() == content


@pytest.mark.parametrize("count", [3, 4, 10, 21])
def test_the_diagram_says_every_rank_and_nothing_is_cut(count):
    rng = np.random.default_rng(count)
    names = [f"method-{place}-{'x' * (place % 9)}" for place in range(count)]
    ranks = rng.uniform(1, count, count)
    distance = critical_difference(count, 2)
    picture = critical_differences(names, ranks, distance, 2)
    figure = picture.figure
    renderer = figure.canvas.get_renderer()
    figure.draw(renderer)
    (panel,) = figure.axes
    texts = {text.get_text(): text.get_window_extent(renderer) for text in panel.texts}
    for name, rank in zip(names, ranks, strict=True):
        assert {f"{rank:.2f}  {name}", f"{name}  {rank:.2f}"} & {*texts}
    assert f"CD = {distance:.2f}" in texts
    for box in [*texts.values(), panel.get_tightbbox(renderer)]:
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
    for one, other in itertools.combinations(texts.values(), 2):
        wide = min(one.x1, other.x1) - max(one.x0, other.x0)
        tall = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert not (wide > 1 and tall > 3)


def test_lines_of_the_diagram_are_its_groups():
    """Two groups that overlap stand on two levels; the best is at the right."""
    ranks = np.array([1.2, 2.0, 2.9, 4.9, 4.0])
    picture = critical_differences(list("abcde"), ranks, 1.0, 9)
    (panel,) = picture.figure.axes
    thick = [line for line in panel.lines if line.get_linewidth() == 3]
    spans = [(round(min(line.get_xdata()), 2), round(max(line.get_xdata()), 2)) for line in thick]
    assert spans == [(1.16, 2.04), (1.96, 2.94), (3.96, 4.94)]
    assert len({line.get_ydata()[0] for line in thick}) == 2
    left, right = panel.get_xlim()
    assert left > right
