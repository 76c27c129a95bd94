"""Tables of one's own: `csv:PATH`, and features in `parquet:PATH`."""

import dataclasses

import numpy as np
import pytest
from own_images import answer, refused, restored  # noqa: F401
from sklearn.datasets import load_wine

from pfl_benchmark import run
from pfl_benchmark.config.flags import config_from
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets.data import Dataset, Samples
from pfl_benchmark.datasets.own import describe_own
from pfl_benchmark.datasets.splits import Split
from pfl_benchmark.datasets.standardise import standardise
from pfl_benchmark.errors import UserError

SHORT = ["--rounds", "3", "--local-epochs", "2", "--eval-every", "0", "--device", "cpu", "--json"]
FORMS = ("csv", "parquet")


def table(rows=178):
    """The wines of scikit-learn, with a column of categories and three cellars."""
    frame = load_wine(as_frame=True).frame.rename(columns={"target": "label"}).iloc[::-1][:rows]
    numbers = np.arange(len(frame))
    frame = frame.sample(frac=1, random_state=0).reset_index(drop=True)
    frame["colour"] = np.array(["red", "white", "rosé"])[numbers % 3]
    return frame.assign(client=np.array(["north", "south", "west"])[numbers // 60])


def write(frame, path, form):
    path = path.with_suffix(f".{form}")
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False) if form == "csv" else frame.to_parquet(path)
    return f"{form}:{path}"


def loaded(text):
    info, _ = describe_own(text)
    if info.reader is not None:
        return info, info.reader.load(info, (), False, 0)
    train, test = info.builtin()
    return info, info.holding(train, test, "here")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("clients", [True, False])
def test_a_method_learns_from_a_table(form, clients, tmp_path, capsys):
    frame = table() if clients else table().drop(columns="client")
    words = ["--dataset", write(frame, tmp_path / "wine", form)]
    about = answer(capsys, "data", *words, "--json", "--out", tmp_path / "split.png")
    assert (about["unit"], about["shape"], about["network"]) == ("rows", [16], "mlp")
    assert "178 rows, 13 measured columns and 1 of categories" in about["source"]
    assert ("images" in str(about), "training rows" in about["split"]) == (False, not clients)
    if clients:
        assert [row["train"] + row["test"] for row in about["clients"]] == [60, 60, 58]
    words += ["--results-dir", tmp_path / "runs", *SHORT]
    assert answer(capsys, "--algo", "fedavg", *words)["accuracy"] > 0.7


def test_a_table_is_the_same_in_both_forms(tmp_path):
    found = [loaded(write(table(), tmp_path / "wine", form)) for form in FORMS]
    assert found[0][0].name == found[1][0].name
    assert found[0][1].checksum == found[1][1].checksum
    other = table().rename(columns={"hue": "shade"})
    assert loaded(write(other, tmp_path / "wine", "csv"))[0].name != found[0][0].name


@pytest.mark.parametrize("form", FORMS)
def test_names_of_columns_and_ignored_ones(form, tmp_path, capsys):
    frame = table().rename(columns={"label": "sort", "client": "site"}).assign(id=np.arange(178), day="x")
    words = ["--dataset", write(frame, tmp_path / "wine", form), "--json", "--out", tmp_path / "x.png"]
    columns = ["--columns", "label=sort,client=site,ignore=id+day"]
    about = answer(capsys, "data", *words, *columns)
    info, dataset = loaded(write(table(), tmp_path / "wine", form))
    assert (about["dataset"], about["data_checksum"]) == (info.name, dataset.checksum)


@pytest.mark.parametrize("form", FORMS)
def test_halves_in_two_files(form, tmp_path):
    frame = table().drop(columns="client")
    for half, part in (("train", frame[:120]), ("test", frame[120:])):
        write(part, tmp_path / "wine" / half, form)
    _, dataset = loaded(f"{form}:{tmp_path / 'wine'}")
    assert (len(dataset.train), len(dataset.test)) == (120, 58)
    assert dataset.test.x[:, 0].tolist() == frame["alcohol"][120:].tolist()


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_other_separators(separator, tmp_path):
    table().to_csv(tmp_path / "wine.csv", index=False, sep=separator, encoding="utf-8-sig")
    info, dataset = loaded(f"csv:{tmp_path / 'wine.csv'}")
    assert dataset.checksum == loaded(write(table(), tmp_path / "other", "csv"))[1].checksum
    assert info.numeric == tuple(range(13))


def rows_of(seed=0):
    """Thirty rows of two measured columns and one of 0 and 1, of three clients; row 29 is nobody's."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(5, 2, 30), rng.normal(-100, 50, 30), np.arange(30.0) % 2])
    y = np.arange(30) % 2
    samples = Samples(x, y)
    dataset = Dataset("x", samples, samples, 2, ("a", "b"), (), (), "here", kind="rows")
    train, test = [np.arange(k, k + 6) for k in (0, 10, 20)], [np.arange(k + 6, k + 9) for k in (0, 10, 20)]
    return dataset, Split(tuple(train), tuple(test))


def test_all_clients_standardise_by_all_training_rows():
    dataset, split = rows_of()
    made, same = standardise(dataset, split, (0, 1), each=False)
    assert same is split
    seen = dataset.train.x[np.concatenate(split.train)]
    expected = (dataset.train.x - seen.mean(0)) / seen.std(0)
    np.testing.assert_allclose(made.train.x[:, :2], expected[:, :2], rtol=1e-6)
    assert made.train.x[:, 2].tolist() == dataset.train.x[:, 2].tolist()
    assert made.train.x.dtype == np.float32


def test_each_client_standardises_by_its_own_training_rows():
    dataset, split = rows_of()
    made, own = standardise(dataset, split, (0, 1), each=True)
    for client in range(3):
        x = made.train.x[own.train[client]]
        np.testing.assert_allclose(x[:, :2].mean(0), 0, atol=1e-6)
        np.testing.assert_allclose(x[:, :2].std(0), 1, rtol=1e-5)
        seen = dataset.train.x[split.train[client]]
        test = (dataset.train.x[split.test[client]] - seen.mean(0)) / seen.std(0)
        np.testing.assert_allclose(made.test.x[own.test[client]][:, :2], test[:, :2], rtol=1e-5)
        for part, labels in ((own.train, made.train.y), (own.test, made.test.y)):
            original = split.train if part is own.train else split.test
            assert labels[part[client]].tolist() == dataset.train.y[original[client]].tolist()


def test_nothing_is_learned_of_test_rows_or_of_new_clients():
    dataset, split = rows_of()
    other = dataset.train.x.copy()
    other[np.concatenate([*split.test, split.train[2]])] += 1000
    changed = dataclasses.replace(dataset, train=Samples(other, dataset.train.y))
    split = dataclasses.replace(split, new=1)
    one, two = (standardise(each, split, (0, 1), each=False)[0] for each in (dataset, changed))
    kept = np.concatenate(split.train[:2])
    assert one.train.x[kept].tolist() == two.train.x[kept].tolist()


def test_a_column_that_is_constant_for_a_client_becomes_zero():
    """Its test rows are in deviations of all training rows."""
    dataset, split = rows_of()
    dataset.train.x[split.train[1], 0] = 0.1
    made, own = standardise(dataset, split, (0, 1), each=True)
    assert not made.train.x[own.train[1]][:, 0].any()
    common = dataset.train.x[np.concatenate(split.train), 0].std()
    expected = (dataset.train.x[split.test[1], 0] - 0.1) / common
    np.testing.assert_allclose(made.test.x[own.test[1]][:, 0], expected, rtol=1e-5)


def test_how_clients_standardise_is_a_field_of_tables_alone(tmp_path, capsys):
    text = write(table(), tmp_path / "wine", "csv")
    _, plain = config_from({"dataset": text})
    _, own = config_from({"dataset": text, "standardise": "client"})
    assert plain.hash != own.hash
    assert (plain.to_dict()["standardise"], own.to_dict()["standardise"]) == ("all", "client")
    assert RunConfig.from_dict(own.to_dict()) == own
    assert "standardise" not in plain.identity
    _, digits = config_from({"dataset": "digits"})
    assert "standardise" not in digits.to_dict()
    with pytest.raises(UserError, match=r"--standardise is for tables, and 'digits' holds images"):
        config_from({"dataset": "digits", "standardise": "client"})
    words = ["--algo", "fedavg-ft", "--dataset", text, "--results-dir", tmp_path, *SHORT, "--standardise"]
    found = [answer(capsys, *words, each)["accuracy"] for each in ("all", "client")]
    assert found[0] != found[1]


# Refusals


def holed(frame):
    frame.loc[[3, 5], "hue"] = None
    frame.loc[4, "ash"] = None
    return frame


def changed(column, place, value):
    """A cell of a column of any values."""

    def change(frame):
        cells = frame[column].astype(object)
        cells[place] = value
        return frame.assign(
            **{column: cells.astype(str) if isinstance(value, str) else cells.infer_objects()}
        )

    return change


BAD = {
    "no label": (
        lambda frame: frame.rename(columns={"label": "Lable"}),
        ["no column label (did you mean 'Lable'?)", "--columns label="],
    ),
    "another name": (
        lambda frame: frame.rename(columns={"label": "kind"}),
        ["no column label; it has alcohol, malic_acid", "--columns label="],
    ),
    "one class": (lambda frame: frame.assign(label=1), ["one class", "two or more"]),
    "a constant column": (
        lambda frame: frame.assign(hue=1.5),
        ["the column hue is constant ('1.5' in every row)", "ignore=hue"],
    ),
    "missing values": (holed, ["3 missing values (hue 2, ash 1; the first in row 3", "ignore=COLUMN"]),
    "text": (
        changed("hue", 177, "dark"),
        ["the column hue is of numbers, but for 1 row, such as 'dark' in row 177"],
    ),
    "infinite": (changed("hue", 7, np.inf), ["hue is infinite in row 7"]),
    "ids": (
        lambda frame: frame.assign(name=[f"n{number}" for number in range(len(frame))]),
        ["name has 178 different texts in 178 rows", "ignore=name"],
    ),
    "a count of rows": (
        lambda frame: frame.assign(Id=np.arange(1, len(frame) + 1)),
        ["the column Id counts the rows from 1 to 178", "ignore=Id"],
    ),
    "decimal commas": (
        lambda frame: frame.assign(hue=frame["hue"].map(lambda value: f"{value:.2f}".replace(".", ","))),
        ["the column hue holds numbers such as '", "write them as 1234.5", "ignore=hue"],
    ),
    "per cent": (
        lambda frame: frame.assign(hue=[f"{n % 7} %" for n in range(len(frame))]),
        ["the column hue holds numbers such as '0 %'"],
    ),
    "labels that are measured": (
        lambda frame: frame.assign(label=frame["label"] + 0.5),
        ["label (label) holds numbers such as", "expected classes"],
    ),
    "no features": (lambda frame: frame[["label", "client"]], ["no columns of features"]),
    "no rows": (lambda frame: frame[:0], ["no rows"]),
    "a rare class": (
        lambda frame: changed("label", 0, 9)(frame.drop(columns="client")),
        ["too few rows of class '9'"],
    ),
    "one client": (lambda frame: frame.assign(client="a"), ["has 1 client, of whom 1 have 5 rows"]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", BAD)
def test_bad_tables(case, form, tmp_path, capsys):
    change, parts = BAD[case]
    refused(capsys, tmp_path, write(change(table()), tmp_path / "wine", form), parts)


KEPT = {
    "years": lambda frame: np.arange(1800, 1800 + len(frame)),
    "dates": lambda frame: [f"{1 + n % 28:02}.01.2020" for n in range(len(frame))],
    "postal codes": lambda frame: [f"1{n % 10}0 110" for n in range(len(frame))],
    "grades": lambda frame: [f"{1 + n % 12}" if n % 4 == 0 else "abcdefg"[n % 7] for n in range(len(frame))],
}


@pytest.mark.parametrize("case", KEPT)
def test_columns_that_look_like_others(case, tmp_path):
    frame = table().assign(hue=KEPT[case])
    info, _ = loaded(write(frame, tmp_path / "wine", "csv"))
    assert len(info.features) > 12


COLUMNS = {
    "label=lable": ["no column lable (did you mean 'label'?)", "it has alcohol"],
    "ignore=hue+huh": ["no column huh"],
    "ignore=label": ["no column label"],
    "client=hue,label=label,ignore=hue+ash": ["ignores hue and asks for it"],
    "side=8": ["--columns has side=8; expected"],
    "label=hue,client=hue": ["names a column twice"],
    "label=hue": ["hue (label) holds numbers such as", "expected classes"],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("columns", COLUMNS)
def test_bad_names_of_columns(columns, form, tmp_path, capsys):
    text = write(table(), tmp_path / "wine", form)
    if columns == "label=hue":
        text = write(table().drop(columns="label"), tmp_path / "wine", form)
    refused(capsys, tmp_path, f"{text}?{columns}", COLUMNS[columns])


FILES = {
    "bytes": (b"\0\1\2", ["is no text"]),
    "parquet": (b"PAR1xx", ["is no text", "parquet:PATH"]),
    "empty": (b"", ["no first line"]),
    "numbers": (b"1,2,3\n4,5,6\n", ["begins with numbers, 1, 2, 3"]),
    "an index": (b",a,label\n0,1,2\n", ["a column without a name, number 1", "index=False"]),
    "Latin-1": ("a,label\ncaf\xe9,1\n".encode("latin-1"), ["in UTF-8"]),
    "long rows": (b"a,label\n1,2\n1,2,3,4\n", ["as many cells in every row"]),
    "a name short": (b"a,b,label\n1,0.5,0.7,1\n2,0.3,0.9,0\n", ["more cells than its 3 columns"]),
    "twice": (b"a,a,label\n1,2,3\n", ["two columns called a"]),
}


@pytest.mark.parametrize("case", FILES)
def test_bad_csv_files(case, tmp_path, capsys):
    content, parts = FILES[case]
    (tmp_path / "own.csv").write_bytes(content)
    refused(capsys, tmp_path, f"csv:{tmp_path / 'own.csv'}", parts)


@pytest.mark.parametrize("form", FORMS)
def test_bad_places(form, tmp_path, capsys):
    text = write(table(), tmp_path / "wine", form)
    refused(capsys, tmp_path, f"{text}@32", ["a table has no pixels", "drop @32"])
    refused(capsys, tmp_path, f"{form}:{tmp_path / 'none'}", ["is no file"])
    refused(capsys, tmp_path, f"{form}:{tmp_path}", [f"a folder without train.{form}"])
    path = text.partition(":")[2]
    refused(capsys, tmp_path, path, [f"data of your own are given as --dataset {form}:"])


def test_partitions_speak_of_rows(tmp_path, capsys):
    text = write(table().drop(columns="client"), tmp_path / "wine", "csv")
    with pytest.raises(UserError, match=r"\d+ training rows for 3 clients"):
        run("fedavg", dataset=text, clients=3, samples_per_client=10_000, results_dir=tmp_path, device="cpu")
