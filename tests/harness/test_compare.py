"""The command `compare`, on made-up records: what is paired, what the figures are, what is refused."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from record_folders import with_seed, write_record
from scipy import stats

from benchmark.cli import main
from benchmark.compare import contests, read_records
from benchmark.engine.config import RunConfig

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
    folders = {
        algo: write_record(tmp_path, config_of(algo), level)
        for algo, level in (("fedper", 0.5), ("ditto", 0.55), ("fedavg", 0.53))
    }
    (contest,) = numbers(compare(*folders.values(), "--json"))
    assert [run["title"] for run in contest["runs"]] == ["ditto", "fedavg", "fedper"]
    assert contest["reference"] == "ditto"
    first, *others = contest["runs"]
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
    (contest,) = numbers(compare(low, high, "--against", middle, "--json"))
    assert contest["reference"] == "fedper"
    assert [run.get("verdict") for run in contest["runs"]] == ["better", None, "worse"]
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
    (contest,) = numbers(compare(tmp_path, "--json"))
    assert contest["runs"][1]["verdict"] == "undecided"
    assert contest["runs"][1]["p_holm"] == 1


def test_seeds_count_as_one_and_only_common_ones_are_compared(tmp_path, compare):
    for seed in (0, 1, 2):
        write_record(tmp_path, config_of("ditto", seed), 0.7)
    two = [write_record(tmp_path, config_of("fedper", seed), 0.5) for seed in (1, 2)]
    (contest,) = numbers(compare(tmp_path, "--json"))
    ditto, fedper = contest["runs"]
    assert (ditto["seeds"], fedper["seeds"]) == ([0, 1, 2], [1, 2])
    assert list(fedper["difference_by_seed"]) == ["1", "2"]
    assert fedper["pairs"] == 40
    assert fedper["difference"] == pytest.approx(np.mean([*fedper["difference_by_seed"].values()]))
    code, out, _ = compare(tmp_path)
    (line,) = (line for line in out.splitlines() if line.startswith("  fedper"))
    assert (code, "1, 2" in line, "1: −" in line, "2: −" in line) == (0, True, True, True)
    assert {record.folder for record in read_records(two)} == set(two)


def test_what_has_no_seed_in_common_with_the_reference_says_so(tmp_path, compare):
    write_record(tmp_path, config_of("ditto", 0), 0.7)
    for seed in (0, 1):
        write_record(tmp_path, config_of("fedavg", seed), 0.4)
    write_record(tmp_path, config_of("fedper", 1), 0.5)
    code, out, _ = compare(tmp_path)
    assert code == 0
    (line,) = (line for line in out.splitlines() if line.startswith("  fedper"))
    assert "no seed in common" in line


def test_entrants_are_named_by_what_they_differ_in(tmp_path, compare):
    common = {"local_epochs": 7}
    write_record(tmp_path, config_of("ditto", **common))
    write_record(tmp_path, config_of("ditto", lr=0.5, **common), 0.5)
    write_record(tmp_path, config_of("ditto", hyper={"lam": 0.5}, **common), 0.3)
    (contest,) = numbers(compare(tmp_path, "--json"))
    titles = [run["title"] for run in contest["runs"]]
    assert len(set(titles)) == 3
    assert any("lr 0.5" in title for title in titles)
    assert any("lam=0.5" in title for title in titles)
    assert not any("epochs" in title for title in titles)
    assert "local epochs 7" in contest["setting"]


def test_settings_are_kept_apart(tmp_path, compare):
    for algo in ("ditto", "fedper"):
        write_record(tmp_path, config_of(algo))
        write_record(tmp_path, config_of(algo, classes_per_client=3), split="another")
    write_record(tmp_path, config_of("fedper", classes_per_client=5), split="alone")
    code, out, err = compare(tmp_path)
    assert (code, out.count("reference\n")) == (0, 2)
    assert "left out: 1 of 5 runs" in err
    assert len(contests(read_records([tmp_path]))) == 3


def test_mixtures_are_told(tmp_path, compare):
    folders = [write_record(tmp_path, config_of(algo)) for algo in ("ditto", "fedper")]
    assert "warning" not in compare(*folders)[2]
    summary = json.loads((folders[0] / "summary.json").read_text())
    summary["environment"]["device"] = "another"
    (folders[0] / "summary.json").write_text(json.dumps(summary))
    assert "mixes 2 devices" in compare(*folders)[2]


def test_a_record_given_twice_counts_once(tmp_path, compare):
    folders = [write_record(tmp_path, config_of(algo)) for algo in ("ditto", "fedper")]
    (contest,) = numbers(compare(*folders, tmp_path, "--against", f"{folders[1]}/", "--json"))
    assert [len(run["records"]) for run in contest["runs"]] == [1, 1]
    assert contest["reference"] == "fedper"


def test_real_runs_can_be_compared(unbroken, compare):
    (contest,) = numbers(compare(unbroken("fedper").folder, unbroken("fedavg").folder, "--json"))
    for run in contest["runs"]:
        assert run["accuracy"] == unbroken(run["title"]).summary["accuracy"]


def refused(answer, *parts):
    code, out, err = answer
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err


def test_bad_input(tmp_path, compare):
    one = write_record(tmp_path, config_of("ditto"))
    refused(compare(), "FOLDER")
    refused(compare(one), "cannot be compared", "give runs on the same setting")
    refused(compare(one.parent / one.name.replace("ditto", "dito")), f"did you mean '{one.name}'")
    (tmp_path / "empty").mkdir()
    refused(compare(tmp_path / "empty"), "holds no finished run")
    refused(compare(one, "--against", tmp_path), "--against", "give the record of one run")
    other = write_record(tmp_path, config_of("fedper"))
    (other / "done").unlink()
    refused(compare(one, other), "is not finished", "give its command again")
    (other / "failed.json").write_text('{"reason": "training diverged"}')
    refused(compare(one, other), "has no result: training diverged")


def test_a_damaged_record_is_named(tmp_path, compare):
    one, two = (write_record(tmp_path, config_of(algo)) for algo in ("ditto", "fedper"))
    (two / "clients.csv").write_text("nothing")
    refused(compare(one, two), two.name, "is damaged", "clients.csv")


def test_two_records_of_one_run_that_differ_are_refused(tmp_path, compare):
    one = write_record(tmp_path / "a", config_of("ditto"))
    write_record(tmp_path / "a", config_of("fedper"))
    (tmp_path / "b").mkdir()
    copy = shutil.copytree(one, tmp_path / "b" / one.name)
    assert compare(tmp_path / "a", copy)[0] == 0
    lines = (copy / "rounds.jsonl").read_text().replace('"seconds"', '"seconds" ')
    (copy / "rounds.jsonl").write_text(lines)
    refused(compare(tmp_path / "a", copy), "are of the same run and differ")


def test_other_copies_of_the_data_are_refused(tmp_path, compare):
    folders = [write_record(tmp_path, config_of(algo)) for algo in ("ditto", "fedper")]
    for number, folder in enumerate(folders):
        about = json.loads((folder / "config.json").read_text())
        about["split"]["data_checksum"] = f"{number:016x}"
        (folder / "config.json").write_text(json.dumps(about))
    refused(compare(*folders), "different copies of 'digits'")
    about["split"]["checksum"] = "another"
    (folders[1] / "config.json").write_text(json.dumps(about))
    refused(compare(*folders), "cannot be compared", "2 copies of 'digits'")
