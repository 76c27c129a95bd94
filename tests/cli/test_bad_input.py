"""Bad input of every kind: exit code 2, one line that names the flag and the remedy, nothing left behind."""

import json

import pytest
import torch

import pfl_benchmark.commands.list as listed
from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.cli import main, parser_of
from pfl_benchmark.commands import command_names, find_command
from pfl_benchmark.resolve.run import configure

DIGITS = "--algo fedavg --dataset digits --device cpu"
TWEETS = "--algo fedavg --dataset synth-tweets --device cpu"

# Arguments, and what the line must say.
CASES = [
    ("--dataset digits", ["--algo is required", *sorted(ALGORITHMS)]),
    ("--algo fedvag", ["'fedvag'", "did you mean 'fedavg'"]),
    ("--algo fedavg --dataset digit", ["did you mean 'digits'"]),
    ("--algo fedavg --setting cifar10-s22", ["did you mean 'cifar10-s2'"]),
    (f"{DIGITS} --setting cifar10-s2", ["--setting cifar10-s2", "'cifar10'", "'digits'"]),
    (f"{DIGITS} --ablation nothing", ["has no ablations"]),
    ("--algo ditto --dataset digits --set lamb=1", ["'lamb'", "did you mean 'lam'"]),
    ("--algo ditto --dataset digits --set lam=x", ["lam=x", "a number"]),
    ("--algo ditto --dataset digits --set lam=nan", ["lam=nan", "finite"]),
    ("--algo ditto --dataset digits --set lam=-inf", ["lam=-inf", "finite"]),
    ("--algo ditto --dataset digits --set lam", ["key=value"]),
    ("--algo ditto --dataset digits --set lam=1 --set lam=2", ["lam is given twice", "give it once"]),
    ("--algo ditto --dataset digits --lam 0.1", ["'lam' is a hyper-parameter", "--set lam=VALUE"]),
    ("--algo ditto --dataset digits --personal-epochs=2", ["--set personal_epochs=VALUE"]),
    ("--algo ditto --dataset digits --set =1", ["key=value"]),
    (f"{DIGITS} --lam 0.1", ["hyper-parameter of ditto", "not of 'fedavg'", "another --algo"]),
    *(
        (f"{words} --dirichlet 0.3 {alpha}", ["unknown flag '--alpha'", "did you mean '--dirichlet'"])
        for words in (DIGITS, "--algo ditto --dataset digits", "tune --trials 2 --algo fedprox")
        for alpha in ("--alpha 0.5", "--alpha=0.5")
    ),
    (f"{DIGITS} --set alpha=0.5", ["no hyper-parameter of 'fedavg'", "--dirichlet 0.5"]),
    *(
        (f"--algo {algo} --dataset digits --dirichlet 0.3 --alpha 0.5", ["--set alpha=VALUE"])
        for algo in ("feddyn", "per-fedavg", "apfl")
    ),
    *(
        (f"{DIGITS} --{name} 3", [f"unknown flag '--{name}'", f"did you mean '--{field}'"])
        for name, field in {
            "learning-rate": "lr",
            "learning_rate": "lr",
            "epochs": "local-epochs",
            "seeds": "seed",
            "num-clients": "clients",
            "frac": "participation",
            "wd": "weight-decay",
        }.items()
    ),
    ("--algo ditto --dataset digits --set momentum=0.9", ["--momentum 0.9"]),
    ("--algo ditto --dataset digits --set batch-size=5", ["--batch-size 5"]),
    ("--algo ditto --dataset digits --set augment=true", ["--augment or --no-augment"]),
    (f"{DIGITS} --classes-per-client 11", ["--classes-per-client is 11", "at most 10"]),
    (f"{DIGITS} --classes-per-client 0", ["--classes-per-client is 0"]),
    (f"{DIGITS} --samples-per-client 5000", ["--samples-per-client is 5,000", "at most"]),
    (f"{DIGITS} --test-samples-per-client 5000", ["--test-samples-per-client is 5,000", "at most"]),
    (f"{DIGITS} --classes-per-client 2 --dirichlet 0.3", ["--classes-per-client", "--dirichlet"]),
    (f"{DIGITS} --classes-per-client 2 --partition iid", ["--classes-per-client", "--partition iid"]),
    (f"{DIGITS} --dirichlet 0.3 --partition shards", ["--dirichlet", "--partition shards"]),
    (
        f"{DIGITS} --partition dirichlet",
        ["--dirichlet is 0", "above 0", "under --partition dirichlet", "such as 0.3"],
    ),
    (f"{DIGITS} --partition dirichlt", ["did you mean 'dirichlet'"]),
    (f"{DIGITS} --dirichlet 0", ["--dirichlet is 0", "above 0"]),
    (f"{DIGITS} --partition natural", ["--partition natural", "'digits' has none"]),
    (f"{DIGITS} --user-pool 5", ["--partition natural", "'digits' has none"]),
    (f"{DIGITS} --user-pool 5 --partition iid", ["--user-pool has no effect under --partition iid"]),
    (f"{DIGITS} --embedding 50", ["--embedding is for words", "'digits'"]),
    (f"{DIGITS} --cell gru", ["--cell is for text", "'digits'"]),
    (f"{TWEETS} --partition iid", ["--partition iid", "--partition natural"]),
    (f"{TWEETS} --dirichlet 0.3", ["--partition dirichlet", "--partition natural"]),
    (f"{TWEETS} --samples-per-client 5", ["--samples-per-client has no effect under --partition natural"]),
    (f"{TWEETS} --classes-per-client 2 --partition natural", ["--classes-per-client has no effect"]),
    (f"{TWEETS} --augment", ["--augment is for images"]),
    (f"{DIGITS} --crop-padding 0", ["--crop-padding 0 does nothing without augmentation"]),
    ("--algo fedavg --no-augment --crop-padding 4", ["--crop-padding 4 does nothing", "drop it"]),
    (f"{DIGITS} --augment --crop-padding 8", ["--crop-padding is 8", "8 pixels a side", "at most 7"]),
    (f"{DIGITS} --augment --crop-padding 4611686018427387904", ["--crop-padding is 46", "at most 7"]),
    (f"{TWEETS} --crop-padding 0", ["does nothing without augmentation", "drop it"]),
    (f"{DIGITS} --augment --crop-padding -1", ["--crop-padding is -1", "at least 0"]),
    (f"{TWEETS} --embedding 0", ["--embedding is 0", "such as 300"]),
    (f"{TWEETS} --embedding 50", ["16 dimensions", "--embedding 16"]),
    (f"{TWEETS} --cell rnn", ["--cell is 'rnn'", "lstm, gru"]),
    (f"{TWEETS} --clients 21", ["clients is 21", "20 users with most", "--user-pool 0"]),
    (f"{TWEETS} --clients 99 --user-pool 0", ["clients is 99", "only 24 users", "at most 24"]),
    (f"{TWEETS} --test-share 0", ["--test-share is 0", "(0, 1)"]),
    (f"{TWEETS} --least-test 18", ["20 are wanted", "no user in", "--least-test"]),
    ("--algo pfedfda --dataset synth-tweets", ["'pfedfda' is not defined for text", "image dataset"]),
    (f"{DIGITS} --participation 0", ["--participation is 0", "(0, 1]"]),
    (f"{DIGITS} --participation 1.1", ["--participation is 1.1", "(0, 1]"]),
    (f"{DIGITS} --rounds 1.5", ["--rounds is '1.5'", "a whole number"]),
    (f"{DIGITS} --rounds", ["--rounds", "a value"]),
    (f"{DIGITS} --lr -0.1", ["--lr is -0.1", "above 0"]),
    (f"{DIGITS} --lr 1e39", ["--lr is 1e+39", "at most 1e+30"]),
    (f"{DIGITS} --weight-decay 1e39", ["--weight-decay is 1e+39", "at most 1e+30"]),
    (f"{DIGITS} --budget bytes --compute-cap 1e9", ["--compute-cap is 1e+09", "at most 100"]),
    (f"{DIGITS} --budget bytes --byte-budget {10**18}", ["--byte-budget is 1", "at most 1,000"]),
    (f"{DIGITS} --samples-per-client {10**12}", ["--samples-per-client is 1", "at most 10,000,000"]),
    (f"{DIGITS} --augment --no-augment", ["--augment and --no-augment", "give one of them"]),
    (f"{DIGITS} --device cpu:7", ["--device cpu:7", "use --device cpu"]),
    (f"{DIGITS} --lr=--", ["--lr is '--'", "expected a value"]),
    (f"{DIGITS} --rounds 1_0", ["--rounds is '1_0'", "a whole number"]),
    (f"{DIGITS} --rounds ٣", ["--rounds is '٣'", "a whole number"]),
    (f"{DIGITS} --lr 0_1", ["--lr is '0_1'", "a number"]),
    (f"{DIGITS} --results-dir {'x' * 300}", ["--results-dir is xxx", "too long"]),
    ("--algo ditto --dataset digits --set lam=1e308", ["lam=1e+308", "at most"]),
    ("--algo ditto --dataset digits --set lam=1_0", ["lam=1_0", "a number"]),
    (f"--algo fedavg-ft --dataset digits --set ft_epochs={'9' * 20}", ["ft_epochs=999", "at most"]),
    ("tables --seeds 99999999999", ["--seeds is 99999999999", "at most 1,000 seeds"]),
    ("tables --jobs ٣", ["--jobs is '٣'", "auto"]),
    ("report --into /dev/zero", ["/dev/zero", "no regular file"]),
    ("speed --repeats 1e20", ["--repeats is '1e20'", "a whole number"]),
    (f"speed --repeats {'9' * 20}", ["--repeats is 999", "at most 1,000"]),
    ("speed --output /dev/null", ["--output /dev/null", "expected a file"]),
    ("--version extra", ["unexpected 'extra' after --version"]),
    (f"{DIGITS} --batch-size {2**63}", ["--batch-size", "64 bits"]),
    (f"{DIGITS} --byte-budget 100", ["--byte-budget", "--budget bytes"]),
    (f"{DIGITS} --budget bytes --byte-budget 100", ["--byte-budget", "too small"]),
    (f"{DIGITS} --budget bytes --sample-budget 100", ["--sample-budget", "--budget samples"]),
    (f"{DIGITS} --budget samples --compute-cap 1.5", ["--compute-cap", "--budget bytes"]),
    (f"{DIGITS} --budget samples --sample-budget 100", ["--sample-budget 100 is too small", "samples"]),
    (
        "--algo fedavg-ft --dataset digits --rounds 5 --budget samples",
        ["--budget samples is too small", "give more --rounds"],
    ),
    ("--algo fedavg-ft --dataset digits --eval-adapted --eval-every 0", ["--eval-adapted does nothing"]),
    (f"{DIGITS} --eval-adapted", ["--eval-adapted does nothing", "'fedavg' does not fine-tune"]),
    (f"{DIGITS} --adapt-epochs 3", ["--adapt-epochs", "--new-clients"]),
    (f"{DIGITS} --new-clients 0.95", ["--new-clients 0.95 leaves 1 of 20 clients", "at least 2"]),
    (f"{DIGITS} --new-clients 1", ["--new-clients is 1", "in [0, 1)"]),
    ("--algo phn --dataset digits --new-clients 0.2", ["clients cannot begin later with 'phn'", "vector"]),
    (f"{DIGITS} --round 3", ["unknown flag '--round'", "did you mean '--rounds'"]),
    (f"{DIGITS} --learning_rate=3", ["unknown flag '--learning_rate'"]),
    (f"{DIGITS} -rounds 3", ["did you mean '--rounds'"]),
    (f"{DIGITS} extra", ["unexpected 'extra'"]),
    (f"{DIGITS} --json=1", ["--json", "no value"]),
    (f"{DIGITS} --results-dir=", ["--results-dir is empty"]),
    (f"{DIGITS} --executor lop", ["did you mean 'loop'"]),
    ("--algo fedavg --dataset digits --device tpu", ["'tpu'", "cuda"]),
    ("rnu --algo fedavg", ["unknown command 'rnu'", "did you mean 'run'", *command_names()]),
    ("list mehtods", ["did you mean 'methods'"]),
    ("list ppfe", ["list knows no 'ppfe'", "list methods ppfe"]),
    ("list methods fedbab", ["unknown method 'fedbab'", "did you mean 'fedbabu'"]),
    ("list settings ppfe", ["list settings takes no names", "drop ppfe"]),
    ("list methods --markdown", ["--markdown is for cards of methods", "list methods fedavg"]),
    ("data --algo fedavg", ["unknown flag '--algo'"]),
    ("data --dataset digits --out split.jpg", ["split.jpg", ".png"]),
]
# Every flag of a count refuses zero and less, every flag of a number what is none.
CASES += [
    (f"{DIGITS} --{name} {value}", [f"--{name} is {value}"])
    for name in (
        "clients",
        "samples-per-client",
        "test-samples-per-client",
        "rounds",
        "local-epochs",
        "batch-size",
    )
    for value in (0, -3)
]
CASES += [
    (f"{DIGITS} --{name} {value}", [f"--{name} is '{value}'", "a number"])
    for name in ("lr", "momentum", "participation", "dirichlet", "weight-decay", "dropout", "compute-cap")
    for value in ("nan", "inf", "abc")
]

DITTO = "--algo ditto --dataset digits --device cpu"
# A mistake of a newcomer, and words that the answer advises and that mend it.
MENDED = [
    *(
        (f"{DITTO} --set lam=1{between}personal_epochs=2", "--set lam=1 --set personal_epochs=2")
        for between in (" ", ",")
    ),
    *(
        (f"{DITTO} --set {pair}", "--set lam=0.1")
        for pair in ("lam 0.1", "lam: 0.1", "lam = 0.1", "lam= 0.1")
    ),
    *((f"{DITTO} {word}", "--dataset digits") for word in ("digits", "dataset=digits")),
    ("--algo fedavg --dataset digits-s2", "--setting digits-s2"),
    ("--algo fedavg --setting digits", "--dataset digits"),
    (f"{DIGITS} --partition dirichlet 0.1", "--dirichlet 0.1"),
    (f"{DIGITS} --partition shards 3", "--classes-per-client 3"),
    (f"{DIGITS} --iid", "--partition iid"),
    ("--algo ppfe --dataset digits --no-reduction", "--algo ppfe --ablation no-reduction"),
    ("fedavg --dataset digits", "--algo fedavg"),
    ("algo=fedavg", "--algo fedavg"),
    ("--algo ditto --dataset digits --set epochs=2", "--local-epochs 2"),
]
# Values typed otherwise, and the value that is meant.
CASES += [
    (f"{DIGITS} --{name} {typed}", [f"--{name} is", f"such as {meant}"])
    for name, typed, meant in (
        ("rounds", "1e2", 100),
        ("rounds", "10k", 10000),
        ("rounds", "1,000", 1000),
        ("seed", "1.0", 1),
        ("lr", "0,05", 0.05),
        ("participation", "10%", 0.1),
        ("participation", "10", "0.1 for 10 %"),
        ("validation", "20", "0.2 for 20 %"),
    )
]
CASES += [(f"{DIGITS} --budget bytes --byte-budget 1GB", ["such as 1000000000"])]
# Several values where one is allowed.
CASES += [
    *((f"{DIGITS} --seed {values}", ["in a command for each"]) for values in ("0,1,2", "0-4", "[0,1]")),
    (f"{DIGITS} --lr 0.01,0.1", ["in a command for each"]),
    (f"{DIGITS} --lr 0.01 0.1", ["'0.1' as a second value of --lr", "a command for each"]),
    (
        f"{DIGITS} --seed 0 0 1",
        ["'0' as a second value of --seed", "one run has one seed", "tables --seeds 3"],
    ),
    (f"{DIGITS} --seeds 5", ["did you mean '--seed'", "tables --seeds 3"]),
    *(
        (f"{words} --device cpu", [f"one run has one {kind}", "a command for each"])
        for kind, words in {
            "method": "--algo fedper fedavg",
            "dataset": "--algo fedper --dataset digits cifar10",
            "setting": "--algo fedper --setting digits-s2 cifar10-s2",
            "seed": "--algo fedper --seed 0 1",
        }.items()
    ),
    *(
        (words, ["a list with commas", f"the name of one {kind}"])
        for kind, words in {
            "method": "--algo fedper,fedavg",
            "dataset": "--algo fedper --dataset digits,cifar10",
            "setting": "--algo fedper --setting digits-s2,cifar10-s2",
            "study": "tables --only main,claims",
        }.items()
    ),
    (f"{DIGITS} --plugin a.py,b.py", ["a list with commas", "--plugin of its own"]),
    (f"{DIGITS} b.py", ["--plugin b.py", "once for each"]),
]
# Flags that take no value, of other commands, of other programs; dashes of word processors; capitals.
CASES += [
    (f"{DIGITS} --augment true", ["--augment takes no value", "give --augment alone"]),
    (f"{DIGITS} --augment false", ["give --no-augment alone"]),
    (f"{DIGITS} --json out.json", ["--json takes no value"]),
    (f"{DIGITS} --jobs 2", ["unknown flag '--jobs'", "a flag of grid, tables", "drop it"]),
    (f"{DIGITS} --trials 3", ["unknown flag '--trials'", "a flag of tune", "drop it"]),
    ("check --dataset digits", ["unknown flag '--dataset'", "a flag of run", "drop it"]),
    ("tables --seed 3", ["did you mean '--seeds'"]),
    *((f"{command} --results-dir x", ["plain words"]) for command in ("compare", "cost", "verify", "board")),
    (f"{DIGITS} --gpu 0", ["did you mean '--device cuda'"]),
    (f"{DIGITS} --hyper lam=1", ["did you mean '--set KEY=VALUE'"]),
    (f"{DIGITS} --out x", ["did you mean '--results-dir DIR'"]),
    (f"{DIGITS} --resume", ["continued by the same command"]),
    (f"{DIGITS} -lr 0.1", ["did you mean '--lr'"]),
    *((f"{DIGITS} {dash}lr 0.1", ["two plain hyphens", "'--lr'"]) for dash in "–—−"),
    ("—algo fedavg", ["two plain hyphens"]),
    *((f"--algo {name}", ["did you mean 'fedavg'"]) for name in ("FedAvgs", "FEDVAG", "fed-agv")),
    ("--algo fedavg --dataset CIFAR-10", ["did you mean 'cifar10'"]),
    ("--algo fedavg --dataset=", ["--dataset is empty"]),
    *(
        (f"--algo fedavg --dataset digits --device {name}", [f"did you mean '{meant}'"])
        for name, meant in {
            "gpu": "cuda",
            "GPU": "cuda",
            "0": "cuda:0",
            "cuda1": "cuda:1",
            "CPU": "cpu",
        }.items()
    ),
    (f"{DIGITS} --partition non-iid", ["did you mean 'dirichlet'"]),
    (f"{DIGITS} --partition pathological", ["did you mean 'distinct'"]),
    (f"{DIGITS} --test-share 0.2", ["--test-share asks for that partition", "or give --partition pooled"]),
    (f"{DIGITS} --least-test 2", ["'digits' has none", "--least-test asks for that partition", "drop it"]),
    ("tables quick", ["--profile quick"]),
    ("tables --quick", ["--profile quick"]),
    ("list models", ["did you mean 'networks'"]),
    ("list algorithms", ["did you mean 'methods'"]),
    ("doctor", ["./run_all.sh doctor"]),
    ("compare", ["lacks FOLDER", "as in: python -m benchmark compare results/runs"]),
    ("pack", ["lacks RESULTS", "python -m benchmark pack results/quick --out quick.zip"]),
    ("check", ["--algo is required", "fedavg"]),
    ("data --dataset folder", ["--dataset folder:PATH"]),
    ("data --dataset ./pictures", ["--dataset folder:./pictures"]),
    ("data --dataset Folder:pictures", ["--dataset folder:pictures"]),
    ("data --dataset x/y.parquet", ["--dataset parquet:x/y.parquet"]),
    ("data --dataset csv:x", ["is no file; expected a CSV file"]),
    ("--algo mine.py", ["--plugin mine.py"]),
    ("data --dataset parquet:x --columns image:img", ["HOLDS=COLUMN"]),
]


def refused(answer, *parts):
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    for part in parts:
        assert part in answer.err


@pytest.fixture(autouse=True)
def _somewhere_else(monkeypatch, tmp_path):
    """So that a default results folder would show up."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


@pytest.mark.parametrize(("words", "parts"), CASES, ids=[words for words, _ in CASES])
def test_one_clear_line(words, parts, command, tmp_path):
    refused(command(words), *parts)
    assert not list((tmp_path / "cwd").iterdir())


@pytest.mark.parametrize(("words", "advised"), MENDED, ids=[words for words, _ in MENDED])
def test_what_is_advised_works(words, advised, command):
    refused(command(words), advised)
    needed = "" if "--algo" in advised else "--algo ditto "
    parser = parser_of("run", find_command("run"))
    configure(parser.parse([*needed.split(), *advised.split()]))


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_where_a_folder_is_needed(place, command, tmp_path):
    (tmp_path / "file").write_text("x")
    answer = command(DIGITS, ["--results-dir", str(tmp_path / place)])
    refused(answer, "a file is where a folder is needed", "--results-dir")


@pytest.mark.parametrize(("name", "said"), [("plugins", "it is a folder"), ("table.csv", "NAME.py")])
def test_plugins_that_are_no_python_file(name, said, command, monkeypatch, tmp_path):
    (tmp_path / "plugins").mkdir()
    (tmp_path / "table.csv").write_text("x")
    monkeypatch.chdir(tmp_path)
    refused(command(DIGITS, ["--plugin", name]), said)


def test_a_table_of_text_is_no_parquet_file(command, tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    refused(command("data", ["--dataset", f"parquet:{tmp_path / 'x.csv'}"]), "no parquet file", "folder:PATH")
    refused(command("data", ["--dataset", f"{tmp_path / 'x.csv'}"]), "--dataset csv:")


@pytest.mark.parametrize(
    ("owner", "ablation"),
    [(method.name, name) for method in ALGORITHMS.values() for name in method.ablations],
)
def test_ablation_of_another_method(owner, ablation, command):
    refused(command(f"--algo fedavg --dataset digits --ablation {ablation}"), ablation, owner)
    refused(command(f"--algo {owner} --dataset digits --ablation {ablation}x"), f"did you mean '{ablation}'")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_where_there_is_none(command):
    refused(command("--algo fedavg --dataset digits --device cuda"), "--device cuda", "--device cpu")


def test_missing_data_offer_digits(command, tmp_path, monkeypatch):
    def no_network(*_):
        raise OSError("no network")

    monkeypatch.setattr("pfl_benchmark.datasets.loading.fetch", no_network)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    nowhere = str(tmp_path / "nowhere")
    refused(command("--algo fedavg", ["--data-dir", nowhere]), nowhere, "no network", "--dataset digits")


def test_truncated_data_file(command, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "data" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        (folder / name).write_bytes(b"\x80\x04\x95")
    refused(
        command("--algo fedavg", ["--data-dir", str(tmp_path / "data")]), "data_batch_1", "could not be read"
    )


def test_results_folder_below_a_file(command, tmp_path):
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", tmp_path / "file" / "runs"):
        refused(command(DIGITS, ["--results-dir", str(folder)]), str(folder), "--results-dir")
    assert (tmp_path / "file").read_text() == "x"


def test_results_folder_of_another_format(command, tmp_path):
    (tmp_path / "store.json").write_text(json.dumps({"format": 99}))
    refused(command(DIGITS, ["--results-dir", str(tmp_path)]), "format 99", "--results-dir")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cwd", "store.json"]


def test_picture_that_cannot_be_written(command, tmp_path):
    (tmp_path / "file").write_text("x")
    refused(command("data --dataset digits", ["--out", str(tmp_path / "file" / "x.png")]), "--out")


def test_diverged_training_says_what_to_do(tiny_run):
    answer = tiny_run("--algo fedavg --lr 1e30")
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.splitlines()[-1].startswith("error: training diverged")
    assert "smaller --lr" in answer.err


def test_a_fault_of_ours_shows_its_traceback(capsys, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("a fault")

    monkeypatch.setitem(listed._PARTS, "settings", (broken, print))
    assert main(["list", "settings"]) == 1
    assert "Traceback" in (shown := capsys.readouterr().err)
    assert "ZeroDivisionError: a fault" in shown


def test_a_place_without_permission_is_one_line(monkeypatch, capsys):
    def closed(words):
        raise PermissionError(13, "Permission denied", "/closed")

    monkeypatch.setattr("pfl_benchmark.cli._dispatch", closed)
    assert main(["report"]) == 2
    expected = "error: /closed: Permission denied; give yourself access to it, or name another place\n"
    assert capsys.readouterr() == ("", expected)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--lr 0.1 --lr=0.2", "--lr is given twice, as 0.1 and as 0.2; 0.2 counts"),
        ("--seed 0 --seed 1", "--seed is given twice, as 0 and as 1; 1 counts (one run has one seed"),
        (
            "--algo fedper",
            "--algo is given twice, as fedavg and as fedper; fedper counts (one run has one method",
        ),
    ],
)
def test_the_last_of_two_values_counts_and_that_is_said(words, told, capsys):
    parser_of("run", find_command("run")).parse(f"{DIGITS} {words}".split())
    assert f"note: {told}" in capsys.readouterr().err
