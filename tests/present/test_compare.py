"""The command `compare`, on made-up records: what is paired, what the figures are, what is refused."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from answers import refused
from record_folders import amend, with_seed, write_record

from pfl_benchmark.cli import main
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.present.compare import groups
from pfl_benchmark.records.store import gather

CONFIG = RunConfig(
    dataset="digits", clients=20, samples_per_client=20, test_samples_per_client=40, rounds=4, seed=0
)


def config_of(algo, seed=0, **changes):
    return with_seed(RunConfig(**{**CONFIG.to_dict(), "algo": algo, **changes}), seed)


@pytest.fixture
def compare(capsys):
    """Run the command; returns exit code, output and the error stream."""

    def go(*words):
        code = main(["compare", *map(str, words)])
        return code, *capsys.readouterr()

    return go


def numbers(answer):
    code, out, _ = answer
    assert code == 0
    return json.loads(out)


def accuracies(folder):
    table = pd.read_csv(folder / "clients.csv")
    return table.correct / table.test_samples


def test_figures_are_those_of_the_clients(tmp_path, compare):
    """With Pratt's treatment of ties, and Holm's correction for two comparisons."""
    from scipy import stats  # takes a second to import

    folders = {
        algo: write_record(tmp_path, config_of(algo), level)
        for algo, level in (("fedper", 0.5), ("ditto", 0.55), ("fedavg", 0.53))
    }
    (group,) = numbers(compare(*folders.values(), "--json"))
    assert [run["title"] for run in group["runs"]] == ["ditto", "fedavg", "fedper"]
    assert group["reference"] == "ditto"
    first, *others = group["runs"]
    assert "p" not in first
    pairs = {run["title"]: accuracies(folders[run["title"]]) - accuracies(folders["ditto"]) for run in others}
    ps = {name: stats.wilcoxon(gap.round(9), zero_method="pratt").pvalue for name, gap in pairs.items()}
    for run in others:
        gap = pairs[run["title"]]
        assert run["difference"] == pytest.approx(gap.mean(), abs=1e-4)  # test sets have equal sizes here
        assert run["standard_error"] == pytest.approx(gap.std(ddof=1) / np.sqrt(len(gap)))
        assert run["p"] == pytest.approx(ps[run["title"]])
        assert run["pairs"] == 20
    assert max(run["p_holm"] for run in others) == pytest.approx(max(2 * min(ps.values()), max(ps.values())))


def test_the_better_is_better_and_the_worse_is_worse(tmp_path, compare):
    low, middle, high = (
        write_record(tmp_path, config_of(algo), level)
        for algo, level in (("fedavg", 0.3), ("fedper", 0.5), ("ditto", 0.7))
    )
    (group,) = numbers(compare(low, high, "--against", middle, "--json"))
    assert group["reference"] == "fedper"
    assert [run.get("verdict") for run in group["runs"]] == ["better", None, "worse"]
    code, out, _ = compare(low, high, "--against", middle)
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line.startswith("  ")}
    assert "reference" in lines["fedper"]
    assert "+20." in lines["ditto"] or "+19." in lines["ditto"]
    assert "−" in lines["fedavg"]
    assert "Holm-corrected" in out


def test_equal_runs_are_undecided(tmp_path, compare):
    shares = np.linspace(0.2, 0.8, 20)
    for algo in ("fedper", "ditto"):
        write_record(tmp_path, config_of(algo), shares=shares)
    (group,) = numbers(compare(tmp_path, "--json"))
    assert group["runs"][1]["verdict"] == "undecided"
    assert group["runs"][1]["p_holm"] == 1


def test_seeds_count_as_one_and_only_common_ones_are_compared(tmp_path, compare):
    for seed in (0, 1, 2):
        write_record(tmp_path, config_of("ditto", seed), 0.7)
    for seed in (1, 2):
        write_record(tmp_path, config_of("fedper", seed), 0.5)
    (group,) = numbers(compare(tmp_path, "--json"))
    ditto, fedper = group["runs"]
    assert (ditto["seeds"], fedper["seeds"]) == ([0, 1, 2], [1, 2])
    assert list(fedper["difference_by_seed"]) == ["1", "2"]
    assert fedper["pairs"] == 40
    assert fedper["difference"] == pytest.approx(np.mean([*fedper["difference_by_seed"].values()]))
    code, out, _ = compare(tmp_path)
    lines = out.splitlines()
    (place,) = (place for place, line in enumerate(lines) if line.startswith("  fedper"))
    line, below = lines[place : place + 2]
    assert (code, "1, 2" in line, "1: −" in line, below.strip()[:4]) == (0, True, True, "2: −")


@pytest.mark.parametrize("seeds", [3, 12])
def test_the_difference_of_every_seed_is_shown_whole(tmp_path, compare, seeds):
    long = {"hyper": {"head_epochs": 3, "body_epochs": 2}}
    for seed in range(seeds):
        write_record(tmp_path, config_of("ditto", seed), 0.7)
        write_record(tmp_path, config_of("fedrep", seed, **long), 0.5)
        write_record(tmp_path, config_of("fedrep", seed), 0.4)
    (group,) = numbers(compare(tmp_path, "--json"))
    _, out, _ = compare(tmp_path)
    last = [line.rsplit(maxsplit=2)[-2:] for line in out.splitlines()]
    for run in group["runs"][1:]:
        for seed, gap in run["difference_by_seed"].items():
            assert [f"{seed}:", f"−{-100 * gap:.2f}"] in last


def test_what_has_no_split_in_common_with_the_reference_says_so(tmp_path, compare):
    ditto = write_record(tmp_path, config_of("ditto", 0), 0.7)
    for seed in (0, 1):
        write_record(tmp_path, config_of("fedavg", seed), 0.4)
    write_record(tmp_path, config_of("fedper", 1), 0.5)
    code, out, _ = compare(tmp_path, "--against", ditto)
    assert code == 0
    (line,) = (line for line in out.splitlines() if line.startswith("  fedper"))
    assert "no split in common" in line


def test_the_reference_is_the_best_of_those_with_most_seeds(tmp_path, compare):
    """One lucky seed is no reason to measure all others by it."""
    for seed in (0, 1):
        write_record(tmp_path, config_of("ditto", seed), 0.5)
        write_record(tmp_path, config_of("fedavg", seed), 0.4)
    write_record(tmp_path, config_of("fedper", 0), 0.7)
    (group,) = numbers(compare(tmp_path, "--json"))
    assert [run["title"] for run in group["runs"]] == ["fedper", "ditto", "fedavg"]
    assert group["reference"] == "ditto"
    assert group["runs"][0]["verdict"] == "better"


def test_the_seeds_of_a_difference_are_told_where_they_are_not_all(tmp_path, compare):
    for algo, level in (("ditto", 0.7), ("fedper", 0.5)):
        write_record(tmp_path, config_of(algo, 0), level)
        write_record(tmp_path, config_of(algo, 1), level, split=f"that of {algo}")
    code, out, _ = compare(tmp_path)
    (line,) = (line for line in out.splitlines() if line.startswith("  fedper"))
    assert (code, "0, 1" in line, "0: −" in line, "1: −" in line) == (0, True, True, False)


def test_clients_are_weighted_by_their_test_samples(tmp_path):
    """As accuracies are; the error is that of the weighted mean, or the usual one where weights are equal."""
    for algo in ("ditto", "fedper"):
        write_record(tmp_path, config_of(algo))
    (group,) = groups(gather([tmp_path]).records)
    for counts in (np.full(20, 40), np.arange(20) + 1):
        records = [
            dataclasses.replace(
                record,
                test_samples=counts,
                accuracies=shares,
                summary={**record.summary, "accuracy": np.average(shares, weights=counts)},
            )
            for record, shares in zip(group.records, np.random.default_rng(1).random((2, 20)), strict=True)
        ]
        (fresh,) = groups(records)
        one, other = fresh.candidates
        (row,) = (s for s in fresh.rows(one) if s.candidate is other)
        gap = other.records[0].accuracies - one.records[0].accuracies
        weights = counts / counts.sum()
        assert row.difference == pytest.approx(weights @ gap)
        spread = np.sqrt(np.sum(weights**2 * (gap - weights @ gap) ** 2) * 20 / 19)
        assert row.standard_error == pytest.approx(spread)
        if len(set(counts)) == 1:
            usual = gap.std(ddof=1) / np.sqrt(20)
            assert row.standard_error == pytest.approx(usual)


def test_a_verdict_against_the_difference_says_that_it_is_by_ranks(tmp_path, compare):
    """Most clients lose a little, some gain much."""
    base = np.full(100, 0.5)
    gains = np.where(np.arange(100) < 12, 0.5, -0.05)
    write_record(tmp_path, config_of("fedper", clients=100), shares=base)
    write_record(tmp_path, config_of("ditto", clients=100), shares=base + gains)
    (group,) = numbers(compare(tmp_path, "--json"))
    assert group["reference"] == "ditto"
    assert group["runs"][1]["difference"] < 0
    assert group["runs"][1]["verdict"] == "better by ranks"
    assert "By ranks: the test speaks for one side" in " ".join(compare(tmp_path)[1].split())


def test_entrants_are_named_by_what_they_differ_in(tmp_path, compare):
    common = {"local_epochs": 7, "lr": SETTINGS["digits-s2"].values["lr"]}
    write_record(tmp_path, config_of("ditto", **common))
    write_record(tmp_path, config_of("ditto", **{**common, "lr": 0.5}), 0.5)
    write_record(tmp_path, config_of("ditto", hyper={"lam": 0.5}, **common), 0.3)
    (group,) = numbers(compare(tmp_path, "--json"))
    titles = [run["title"] for run in group["runs"]]
    assert len(set(titles)) == 3
    assert "ditto" in titles  # as the setting has it
    assert any("lr 0.5" in title for title in titles)
    assert any("lam=0.5" in title for title in titles)
    assert not any("epochs" in title for title in titles)
    assert "local epochs 7" in group["setting"]


def test_settings_are_kept_apart(tmp_path, compare):
    for algo in ("ditto", "fedper"):
        write_record(tmp_path, config_of(algo))
        write_record(tmp_path, config_of(algo, classes_per_client=3), split="another")
    write_record(tmp_path, config_of("fedper", classes_per_client=5), split="alone")
    code, out, err = compare(tmp_path)
    assert (code, out.count("reference\n")) == (0, 2)
    assert "left out: 1 of 5 runs" in err
    assert len(groups(gather([tmp_path]).records)) == 3


def test_runs_on_different_datasets_are_no_pairs(tmp_path, compare):
    """A split is indices: those of two datasets may be the same."""
    write_record(tmp_path, config_of("ditto"), split="indices")
    write_record(tmp_path, config_of("fedper", dataset="fmnist"), split="indices")
    refused(compare(tmp_path), "cannot be compared")


def test_learning_curves_are_drawn(tmp_path, compare):
    write_record(tmp_path / "runs", config_of("ditto"))
    write_record(tmp_path / "runs", config_of("fedper"))
    refused(compare(tmp_path / "runs", "--out", tmp_path / "x.gif"), "ends in .png or .svg or .pdf")
    for ending, start in {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}.items():
        file = tmp_path / "new" / f"curves.{ending}"
        assert compare(tmp_path / "runs", "--out", file)[0] == 0
        assert file.read_bytes().startswith(start)


def test_titles_that_would_be_alike_get_their_hash(tmp_path, compare):
    folders = [
        write_record(tmp_path, config_of("fedavg-ft", hyper={"ft_epochs": epochs})) for epochs in (2, 3)
    ]
    (group,) = groups(gather(folders).records)
    alike = [dataclasses.replace(record, method="one name") for record in group.records]
    (group,) = groups(alike)
    assert {candidate.title for candidate in group.candidates} == {
        f"one name ({folder.name[-10:]})" for folder in folders
    }


def test_mixtures_are_told(tmp_path, compare):
    folders = [write_record(tmp_path, config_of(algo)) for algo in ("ditto", "fedper")]
    assert "warning" not in compare(*folders)[2]
    amend(folders[0] / "summary.json", lambda summary: summary["environment"].update(device="another"))
    assert "mixes 2 devices" in compare(*folders)[2]


def test_a_record_given_twice_counts_once(tmp_path, compare):
    folders = [write_record(tmp_path, config_of(algo)) for algo in ("ditto", "fedper")]
    (group,) = numbers(compare(*folders, tmp_path, "--against", f"{folders[1]}/", "--json"))
    assert [len(run["records"]) for run in group["runs"]] == [1, 1]
    assert group["reference"] == "fedper"


def test_real_runs_can_be_compared(unbroken, compare):
    (group,) = numbers(compare(unbroken("fedper").folder, unbroken("fedavg").folder, "--json"))
    for run in group["runs"]:
        assert run["accuracy"] == unbroken(run["title"]).summary["accuracy"]


def test_bad_input(tmp_path, compare):
    one = write_record(tmp_path, config_of("ditto"))
    refused(compare(), "FOLDER")
    refused(compare(one.parent / one.name.replace("ditto", "dito")), f"did you mean '{one.name}'")
    (tmp_path / "empty").mkdir()
    refused(compare(tmp_path / "empty"), "holds no finished run")
    refused(compare(one), "one run here", "give more folders")
    refused(compare(one, "--against", tmp_path), "--against", "give the record of one run")
    refused(compare(one / "done"), "done is no folder")
    refused(compare("~nobody-of-that-name/x"), "expected a path")
    refused(compare(tmp_path / ("x" * 300)), "too long", "a shorter path")
    other = write_record(tmp_path, config_of("fedper"), split="another")
    refused(compare(one, other), "cannot be compared: no two of them", "give runs on the same setting")
    refused(
        compare(one, "--against", other),
        "none of the others has a seed and its split in",
    )
    far = write_record(tmp_path, config_of("fedper", clients=7, seed=1), split="far")
    refused(
        compare(one, "--against", far),
        "they are of 'digits-s2, clients 7, samples per client 20, test samples per client 40, seed 1', '",
    )
    copy = shutil.copytree(far, tmp_path / "copies" / far.name)
    refused(compare(one, copy, "--against", far), "they are of 'digits-s2, clients 7, samples per client 20,")
    refused(compare(one, "--against", one, other), "--against names runs that differ in more than")
    (other / "done").unlink()
    refused(compare(one, other), "is not finished", "continue it")
    (other / "failed.json").write_text('{"reason": "training diverged"}')
    refused(compare(one, other), "has no result: training diverged")


def test_a_damaged_record_is_named(tmp_path, compare):
    one, two = (write_record(tmp_path, config_of(algo)) for algo in ("ditto", "fedper"))
    (two / "clients.csv").write_text("nothing")
    refused(compare(one, two), two.name, "cannot be used", "clients.csv")
    aside = two.rename(two.with_name(f"{two.name}.damaged"))
    refused(compare(one, aside), "cannot be used")


def test_what_has_no_result_is_told_and_left_out_of_a_results_folder(tmp_path, compare):
    """So that nobody takes a table for complete from which a method is missing because it diverged."""
    one, two, damaged, unfinished, diverged = (
        write_record(tmp_path, config_of(algo)) for algo in ("ditto", "fedper", "fedavg", "fedrep", "local")
    )
    (damaged / "clients.csv").write_text("nothing")
    for folder in (unfinished, diverged):
        (folder / "done").unlink()
    (diverged / "failed.json").write_text('{"reason": "training diverged"}')
    shutil.copytree(damaged, tmp_path / "other" / damaged.name)
    shutil.copytree(one, tmp_path / "other" / one.name)
    code, out, err = compare(tmp_path / "other")
    left_out, error = err.splitlines()
    assert (code, out) == (2, "")
    assert left_out.startswith(f"left out: damaged record, not used: {damaged.name}")
    assert error.startswith("error: there is one run here")
    code, out, err = compare(tmp_path, "--json")
    assert code == 0
    assert {folder for run in json.loads(out)[0]["runs"] for folder in run["records"]} == {str(one), str(two)}
    assert f"left out: damaged record, not used: {damaged.name}: clients.csv" in err
    assert f"left out: 1 in {tmp_path} whose training diverged ({diverged.name})" in err
    assert f"left out: 1 in {tmp_path} not finished" in err


def test_a_record_that_cannot_be_opened_is_left_out(tmp_path, compare, monkeypatch):
    _, _, closed = (write_record(tmp_path, config_of(algo)) for algo in ("ditto", "fedper", "fedavg"))
    exists = Path.exists

    def guarded(path):
        if path.parent.name == closed.name:
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", guarded)
    code, _, err = compare(tmp_path)
    assert code == 0
    assert f"left out: damaged record, not used: {closed.name}: Permission denied" in err


def test_two_records_of_one_run_that_differ_are_refused(tmp_path, compare):
    one = write_record(tmp_path / "a", config_of("ditto"))
    write_record(tmp_path / "a", config_of("fedper"))
    (tmp_path / "b").mkdir()
    copy = shutil.copytree(one, tmp_path / "b" / one.name)
    assert compare(tmp_path / "a", copy)[0] == 0
    amend(copy / "rounds.jsonl", lambda lines: lines[0].update(loss=9.0))
    refused(compare(tmp_path / "a", copy), "are of the same run and differ")


def test_the_reference_may_be_a_copy(tmp_path, compare):
    one, two = (write_record(tmp_path / "a", config_of(algo)) for algo in ("ditto", "fedper"))
    copy = shutil.copytree(two, tmp_path / "b" / two.name)
    (group,) = numbers(compare(one, two, "--against", copy, "--json"))
    assert group["reference"] == "fedper"


def test_other_copies_of_the_data_are_refused(tmp_path, compare):
    folders = [write_record(tmp_path, config_of(algo)) for algo in ("ditto", "fedper")]
    untold = write_record(tmp_path, config_of("fedavg"))  # as older records are; hides nothing
    for number, folder in enumerate(folders):
        changes = {"data_checksum": f"{number:016x}"}
        amend(folder / "config.json", lambda about, changes=changes: about["split"].update(changes))
    refused(compare(untold, *folders), "different copies of 'digits'")
    amend(folders[1] / "config.json", lambda about: about["split"].update(checksum="another"))
    refused(compare(*folders), "cannot be compared", "2 copies of 'digits'")
