"""Sentiment140 and GloVe as people have them: every form, the cache, what is said when something is wrong.

The files are made here: three users with eleven tweets each.
"""

import ssl
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest

from pfl_benchmark.datasets.api import load
from pfl_benchmark.datasets.data import PADDING, UNKNOWN
from pfl_benchmark.datasets.text import sent140
from pfl_benchmark.datasets.text.tokens import number_words
from pfl_benchmark.datasets.text.tweets import LEAST
from pfl_benchmark.errors import UserError

WIDTH = 5
WORDS = ["good", "bad", "day", "!", "café", "the", "i'm"]
TEXTS = ["Good day!", "bad &lt;3 day", "the unheardof GOOD, café", "", " ".join(["day"] * 30)]
COLUMNS = ["target", "id", "date", "query", "user", "text"]
OFFICIAL = "training.1600000.processed.noemoticon.csv"

pytest.importorskip("torchtext", reason="torchtext is not installed: tweets cannot be prepared")


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    """No test may see or touch the user's own data and cache, or the net."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))
    monkeypatch.delenv("PFL_DATA_DIR", raising=False)

    def refuse(*_):
        raise OSError("no network")

    monkeypatch.setattr(sent140, "fetch", refuse)


@pytest.fixture
def table():
    rows = []
    for user in ("zoe", "Ann", "bob"):
        for i in range(11):
            rows.append((4 * (i % 3 == 0), 1000 + len(rows), "Mon", "NO_QUERY", user, TEXTS[i % len(TEXTS)]))
    rows.append((4, 5000, "Mon", "NO_QUERY", "rare", "good"))
    return pd.DataFrame(rows, columns=COLUMNS)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "data"
    (folder / "sent140").mkdir(parents=True)
    (folder / "glove").mkdir()
    write_vectors(folder / "glove" / f"glove.{WIDTH}d.txt")
    return folder


def write_vectors(path, width=WIDTH, words=WORDS, end="\n"):
    lines = [f"{word} {' '.join(str(i + j / 8) for j in range(width))}" for i, word in enumerate(words)]
    path.write_text("\n".join(lines) + end, encoding="utf-8")


def csv(table, **options):
    return table.to_csv(index=False, header=False, quoting=1, **options).encode("latin-1")


def write_csv(root, table):
    (root / "sent140" / OFFICIAL).write_bytes(csv(table))


def write_headed_csv(root, table):
    text = table[COLUMNS[::-1]].to_csv(index=False)
    (root / "sent140" / "mine.csv").write_bytes(text.encode("latin-1"))


def write_zip(root, table):
    with zipfile.ZipFile(root / "sent140" / "trainingandtestdata.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("testdata.manual.2009.06.14.csv", csv(table[:5]))
        archive.writestr(OFFICIAL, csv(table))


def write_parquet(root, table):
    table.drop(columns="query").assign(source="x").to_parquet(root / "sent140" / "some.parquet")


def arrays(dataset):
    return dataset.train.x, dataset.train.y, dataset.users, dataset.vectors


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(arrays(a), arrays(b), strict=True))


# What is read


@pytest.mark.parametrize("write", [write_csv, write_headed_csv, write_zip, write_parquet])
def test_every_form_of_the_tweets(write, root, table):
    write(root, table)
    dataset = load("sent140", root, embedding=WIDTH)
    x, y, users, vectors = arrays(dataset)
    assert dataset.test is dataset.train
    assert users.tolist() == [0] * 11 + [1] * 11 + [2] * 11  # Ann, bob, zoe; the rare one is not kept
    assert y.tolist() == [int(i % 3 == 0) for i in range(11)] * 3
    assert vectors.shape == (2 + 6, WIDTH)  # all but "i'm"
    assert f"partial: {len(table)} of 1,600,000 tweets" in dataset.source
    assert f"{WIDTH}-dimensional" in dataset.source
    assert (x[3] == PADDING).all()  # the empty tweet
    assert (x[4] == x[4, 0]).all()  # 30 words, cut to 25
    assert x.shape[1] == 25


@pytest.fixture
def words_of(root, table):
    """The words of a tweet of the first user, as their vectors say."""
    write_csv(root, table)
    dataset = load("sent140", root, embedding=WIDTH)
    first = dict(enumerate(WORDS))

    def words(tweet):
        rows = [row for row in dataset.train.x[tweet] if row != PADDING]
        return [None if row == UNKNOWN else first[int(dataset.vectors[row, 0])] for row in rows]

    return words


def test_words_and_their_vectors(words_of):
    assert words_of(0) == ["good", "day", "!"]
    assert words_of(1) == ["bad", None, "day"]  # <3, after its entity
    assert words_of(2) == ["the", None, "good", None, "café"]
    assert words_of(3) == []
    assert words_of(4) == ["day"] * 25


def test_words_by_number():
    rows, words = number_words(["a b a", "", "b c &amp; d"], 3, 4)
    assert words == ["a", "b", "c", "&", "d"]
    assert rows.tolist() == [[0, 1, 0, -1], [-1] * 4, [1, 2, 3, 4]]


def test_ambiguous_repeated_and_neutral_tweets(root, table):
    extra = table.iloc[[0, 1, 2]].copy()
    extra["target"] = [0, table["target"][1], 2]  # contradicts, repeats, is neutral
    extra.loc[2, "id"] = 7777
    write_csv(root, pd.concat([table, extra]))
    dataset = load("sent140", root, embedding=WIDTH)
    assert np.bincount(dataset.users).tolist() == [11, 11, 10]
    write_csv(root, table.drop(index=[0, 1]))  # two fewer leave zoe with nine
    assert np.bincount(load("sent140", root, embedding=WIDTH).users).tolist() == [11, 11]


def test_the_official_file_comes_first_else_the_largest(root, table):
    write_parquet(root, table)
    (root / "sent140" / "small.csv").write_bytes(csv(table[:11]))
    assert "some.parquet" in load("sent140", root, embedding=WIDTH).source
    write_csv(root, table[:11])
    assert OFFICIAL in load("sent140", root, embedding=WIDTH).source


@pytest.mark.parametrize("packed", [False, True])
def test_the_width_chooses_the_vectors(packed, root, table):
    write_csv(root, table)
    other = root / "glove" / "glove.9d.txt"
    write_vectors(other, 9)
    if packed:
        with zipfile.ZipFile(root / "glove" / "glove.zip", "w") as archive:
            for path in sorted((root / "glove").glob("*.txt")):
                archive.write(path, path.name)
                path.unlink()
    for width in (WIDTH, 9):
        assert load("sent140", root, embedding=width).vectors.shape[1] == width
    assert load("sent140", root).vectors.shape[1] == 9


def test_another_folder_may_hold_the_vectors(root, table, tmp_path):
    write_csv(root, table)
    own = tmp_path / "cache-home" / "pfl-benchmark" / "data" / "glove"
    own.mkdir(parents=True)
    (root / "glove" / f"glove.{WIDTH}d.txt").rename(own / "any.txt")
    assert str(own) in load("sent140", root, embedding=WIDTH).source


def test_a_line_with_the_size_of_the_table_is_no_vector(root, table):
    write_csv(root, table)
    path = root / "glove" / f"glove.{WIDTH}d.txt"
    plain = load("sent140", root, embedding=WIDTH)
    path.write_text(f"{len(WORDS)} {WIDTH}\n" + path.read_text())
    assert same(load("sent140", root, embedding=WIDTH), plain)


def test_torchtext_leaves_the_checks_of_certificates_alone(root, table, monkeypatch):
    def checked():
        raise AssertionError("nothing is fetched here")

    monkeypatch.setattr(ssl, "_create_default_https_context", checked)
    write_csv(root, table)
    load("sent140", root, embedding=WIDTH)
    assert ssl._create_default_https_context is checked


def test_nothing_is_said_while_vectors_are_read(root, table, capsys):
    write_csv(root, table)
    load("sent140", root, embedding=WIDTH)
    assert capsys.readouterr() == ("", "")


# The cache


def test_the_second_time_needs_no_torchtext(root, table, monkeypatch):
    write_csv(root, table)
    first = load("sent140", root, embedding=WIDTH)
    monkeypatch.setitem(sys.modules, "torchtext", None)
    again = load("sent140", root, embedding=WIDTH)
    assert same(first, again)
    assert (first.digest, first.source) == (again.digest, again.source)
    write_csv(root, table[:-5])
    with pytest.raises(UserError, match=r"torchtext 0.6.0.*pip install.*synth-tweets"):
        load("sent140", root, embedding=WIDTH)


def test_a_read_only_folder_is_left_alone(root, table, tmp_path):
    write_csv(root, table)
    folders = [root, root / "sent140", root / "glove"]
    before = sorted(root.rglob("*"))
    for folder in folders:
        folder.chmod(0o555)
    load("sent140", root, embedding=WIDTH)
    for folder in folders:
        folder.chmod(0o755)
    assert sorted(root.rglob("*")) == before
    assert list((tmp_path / "cache-home").rglob("sent140-*.npz"))


def test_the_digest_follows_the_vectors(root, table):
    write_csv(root, table)
    before = load("sent140", root, embedding=WIDTH)
    write_vectors(root / "glove" / f"glove.{WIDTH}d.txt", words=[*WORDS[1:], WORDS[0]])
    assert load("sent140", root, embedding=WIDTH).digest != before.digest


# Bad input: one line each


def refuses(root, *parts, embedding=WIDTH):
    with pytest.raises(UserError) as caught:
        load("sent140", root, embedding=embedding)
    line = str(caught.value)
    assert "\n" not in line
    for part in parts:
        assert part in line


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["expected a CSV with the columns target, id, date, query, user, text"]),
        (b'"0","1","Mon","x"\n' * 20, ["expected a CSV", "it has 4 columns"]),
        (b'"0","1","Mon","x","u","text"\n"0","2"\n', ["row 2", "an id and a user", "user ''"]),
        (b"target,text\n0,hello\n", ["it has target, text"]),
        (b'"0","1","Mon","x","u","t"\n"0","1","Mon","x","u","t","more"\n', ["expected a CSV", "saw 7"]),
        (b'"7","1","Mon","x","u","text"\n', ["a target 0, 2 or 4", "target '7'"]),
        (bytes(range(256)) * 40, ["some.csv could not be read"]),
        (b"\x00" * 500, ["some.csv could not be read"]),
        (b'"0","1","Mon","x","u","text"\n', [f"no user with {LEAST} tweets"]),
    ],
    ids=["empty", "columns", "row", "head", "more", "target", "bytes", "zeros", "few"],
)
def test_bad_csv(content, parts, root):
    (root / "sent140" / "some.csv").write_bytes(content)
    refuses(root, "some.csv", *parts)


@pytest.mark.parametrize("keep", [0.2, 0.98])
def test_truncated_zip(keep, root, table):
    write_zip(root, table)
    path = root / "sent140" / "trainingandtestdata.zip"
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    refuses(root, f"{path} could not be read", "fetch it again or remove it")


def test_damaged_zip(root, table):
    write_zip(root, table)
    path = root / "sent140" / "trainingandtestdata.zip"
    content = bytearray(path.read_bytes())
    content[-400] ^= 255  # in the compressed data of the larger file
    path.write_bytes(content)
    refuses(root, f"{path} could not be read", "fetch it again or remove it")


def test_zip_without_a_csv(root):
    with zipfile.ZipFile(root / "sent140" / "some.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
    refuses(root, "expected a .csv file in it", "readme.txt")


def test_parquet_without_users(root, table):
    table.drop(columns="user").to_parquet(root / "sent140" / "some.parquet")
    refuses(root, "each once")


def test_truncated_parquet(root, table):
    write_parquet(root, table)
    path = root / "sent140" / "some.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    refuses(root, "a complete parquet file")


def test_vectors_of_another_width(root, table):
    write_csv(root, table)
    refuses(
        root,
        "of 300 dimensions",
        f"has {WIDTH}, for --embedding {WIDTH}",
        "no network",
        "glove.6B.zip",
        embedding=300,
    )
    refuses(root, "of 7 dimensions", "no download has that width", embedding=7)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("good 1 2 3 4 5\nbad 1 2 3 4\n", "line 2 of glove.5d.txt has 4"),
        ("good 1 2 3 4 5\nbad 1 2 3 4 x\n", "expected word vectors"),
        ("good 1 2 3 4 5\nthe 1 2 3 4 5\nbad 1 2 3 4 x\n", "expected word vectors"),
        ("good 1 2 3 4 5\nthe 1 2 3 4 5\nbad 1 2 3 4 nan\n", "not finite"),
        ("gut 1 2 3 4 5\nböse 1 2 3 4 5\n", "for none of the words"),
        ("no vectors at all", "expected word vectors"),
        ("", "expected word vectors"),
    ],
)
def test_bad_vectors(text, part, root, table):
    write_csv(root, table)
    (root / "glove" / f"glove.{WIDTH}d.txt").write_text(text, encoding="utf-8")
    refuses(root, part)


def test_truncated_zip_of_vectors(root, table):
    write_csv(root, table)
    path = root / "glove" / "glove.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(root / "glove" / f"glove.{WIDTH}d.txt", "v.txt")
    path.write_bytes(path.read_bytes()[:-30])
    refuses(root, "glove.zip could not be read")


def test_nothing_found(root):
    refuses(root, "'sent140' was not found", str(root / "sent140"), "no network", "synth-tweets")


def test_a_torchtext_that_does_not_fit(root, table, monkeypatch):
    write_csv(root, table)
    monkeypatch.setitem(sys.modules, "torchtext", None)
    refuses(root, "torchtext 0.6.0", "pip install torchtext==0.6.0")
