"""Packs: what they hold, and what is refused in a stranger's."""

import hashlib
import json
import stat
import zipfile

import pytest
from answers import refused
from damages import CONFIG, damages
from record_folders import amend, with_seed, write_record

from pfl_benchmark.cli import main
from pfl_benchmark.errors import UserError
from pfl_benchmark.records import archive
from pfl_benchmark.records.archive import read_verdicts, unpacked, write_pack, write_verdicts
from pfl_benchmark.records.gather import gather
from pfl_benchmark.records.seal import seal_of
from pfl_benchmark.records.sources import SOURCES
from pfl_benchmark.resolve.plugins import LOADED, VARIABLE


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        write_record(root, with_seed(CONFIG, seed))
    return gather([root]).records


@pytest.fixture
def pack(records, tmp_path):
    path = tmp_path / "some.zip"
    write_pack(records, path)
    return path


def members(path):
    with zipfile.ZipFile(path) as found:
        return {entry.filename: found.read(entry) for entry in found.infolist()}


def rewrite(path, content, *more):
    """A zip file of these members, then of pairs of an entry and its content."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, file in [*content.items(), *more]:
            made.writestr(name, file)


def relisted(content):
    """The same members with a pack.json that lists them as they are: what a forger would do."""
    about = json.loads(content["pack.json"])
    about["files"] = {n: hashlib.sha256(f).hexdigest() for n, f in content.items() if n != "pack.json"}
    return {**content, "pack.json": json.dumps(about).encode()}


def reason(path):
    """Why a pack is refused."""
    with pytest.raises(UserError) as caught, unpacked(path):
        pass
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


def complaint(path):
    """Why a pack is refused; empty if it is not."""
    try:
        with unpacked(path) as found:
            return "" if len(found.records) == 2 else "other records"
    except UserError as error:
        return str(error)


def test_records_come_out_as_they_went_in(records, pack):
    with unpacked(pack) as found:
        assert {r.folder.name: r.digest for r in found.records} == {r.folder.name: r.digest for r in records}
        assert found.digest == hashlib.sha256(pack.read_bytes()).hexdigest()
        assert not found.plugins
        inside = found.records[0].folder
    assert not inside.exists()


def test_the_same_records_make_the_same_pack(records, pack, tmp_path):
    write_pack(records[::-1], tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == pack.read_bytes()


def test_it_names_data_versions_and_environments(records, pack):
    about = json.loads(members(pack)["pack.json"])
    assert {data["dataset"] for data in about["data"]} == {"digits"}
    assert "torch" in about["packages"]
    assert sum(each["records"] for each in about["environments"]) == len(records)


def test_only_sealed_files_are_packed(records, pack):
    names = {name.rpartition("/")[2] for name in members(pack)}
    assert names == {"pack.json", "config.json", "rounds.jsonl", "clients.csv", "summary.json", "done"}


OUTSIDE = (
    "../evil.py",
    "/etc/evil",
    "records/../../evil",
    "records\\..\\evil",
    "C:/evil",
    "records/fedavg-digits-seed0-0123456789/../../../done",
)
ODD = (
    "evil.py",
    "checkpoint.pt",
    "records/fedavg-digits-seed0-0123456789/checkpoint.pt",
    "records/fedavg-digits-seed0-0123456789/inner/done",
    "plugins/inner/evil.py",
    "plugins/evil.pyc",
    "records/",
    "pack.json/evil",
)


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_path_leads_outside(name, pack, tmp_path):
    rewrite(pack, relisted({**members(pack), name: b"evil"}))
    before = sorted(tmp_path.rglob("*"))
    assert "leads outside" in reason(pack)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ODD)
def test_other_files_are_refused(name, pack):
    rewrite(pack, relisted({**members(pack), name: b"evil"}))
    assert f"{name} is no name of a file in a pack" in reason(pack)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_is_there_twice_is_refused(pack):
    content = members(pack)
    name = next(name for name in content if name.endswith("done"))
    rewrite(pack, content, (name, b"other"))
    assert f"{name} is there twice" in reason(pack)
    other = name.replace("fedavg", "FedAvg")
    rewrite(pack, relisted({**content, other: content[name]}))
    assert "is there twice" in reason(pack)


@pytest.mark.parametrize(
    "name", ["pack.json", "config.json", "rounds.jsonl", "clients.csv", "summary.json", "done"]
)
def test_a_file_that_is_missing_is_named(name, pack):
    content = members(pack)
    gone = next(each for each in content if each.endswith(name))
    del content[gone]
    rewrite(pack, content)
    assert gone in reason(pack)
    if name != "pack.json":
        rewrite(pack, relisted(content))
        assert gone in reason(pack)


def test_a_file_that_is_not_listed_is_named(pack):
    name = "plugins/more.py"
    rewrite(pack, {**members(pack), name: b"evil"})
    assert f"{name} is not listed" in reason(pack)


def test_one_changed_digit_is_found(pack):
    """By the pack's checksums; if these were made again by the seal; if that was, too, by other figures."""
    content = members(pack)
    name = next(each for each in content if each.endswith("summary.json"))
    changed = {**content, name: content[name].replace(b'"accuracy": 0.', b'"accuracy": 0.1', 1)}
    rewrite(pack, changed)
    assert f"{name} is not as it was packed" in reason(pack)
    rewrite(pack, relisted(changed))
    assert "summary.json is not as it was sealed" in reason(pack)
    folder = name.removesuffix("summary.json")
    inner = {each.removeprefix(folder): file for each, file in changed.items() if each.startswith(folder)}
    del inner["done"]
    rewrite(pack, relisted({**changed, f"{folder}done": seal_of(inner).encode()}))
    assert "accuracy" in reason(pack)


@pytest.mark.parametrize("damage", [*damages()][::6])
def test_records_are_read_as_carefully_as_in_folders(damage, pack):
    file, change = damages()[damage]
    content = members(pack)
    places = [name for name in content if name.endswith(f"/{file}")]
    for name in places[:1]:
        content[name] = change(content[name])
    rewrite(pack, relisted(content))
    # Without its seal a record may be used as it is, like one of an older version.
    assert complaint(pack).count("\n") == 0
    assert complaint(pack) == "" or complaint(pack).startswith(f"{pack} cannot be used as a pack: ")


@pytest.mark.parametrize(
    "about", [b"", b"[]", b"{}", b'{"format": 1}', b"[" * 100_000, b"\xff", b'{"format": 2}']
)
def test_a_pack_without_a_list_of_its_files_is_refused(about, pack):
    rewrite(pack, {**members(pack), "pack.json": about})
    assert "pack.json" in reason(pack)


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\3\4" + b"\0" * 100, b"text"])
def test_what_is_no_zip_file_is_refused(content, tmp_path):
    path = tmp_path / "some.zip"
    path.write_bytes(content)
    reason(path)


def test_half_a_zip_file_and_every_flipped_byte_is_refused(pack):
    whole = pack.read_bytes()
    pack.write_bytes(whole[: len(whole) // 2])
    reason(pack)
    for place in range(40, len(whole), len(whole) // 40):
        pack.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        # Some bytes mean nothing, such as the moment of a file.
        assert complaint(pack) == "" or complaint(pack).startswith(f"{pack} cannot be used as a pack: ")
        assert "\n" not in complaint(pack)


def test_too_much_is_refused_before_it_is_unpacked(pack, monkeypatch):
    content = members(pack)
    name = next(each for each in content if each.endswith("rounds.jsonl"))
    monkeypatch.setattr(archive, "LARGEST", 10_000)
    rewrite(pack, relisted({**content, name: b"0" * 1_000_000}))
    monkeypatch.setattr(zipfile.ZipFile, "open", None)
    assert "1,000,000 bytes; expected at most 10,000" in reason(pack)


@pytest.mark.parametrize(("limit", "value"), [("MOST", 5), ("LARGEST_IN_ALL", 100), ("LARGEST", 100)])
def test_limits_hold_for_those_who_write_as_well(limit, value, records, tmp_path, monkeypatch):
    monkeypatch.setattr(archive, limit, value)
    with pytest.raises(UserError, match="make several packs"):
        write_pack(records, tmp_path / "some.zip")
    assert not (tmp_path / "some.zip").exists()


def test_links_and_encrypted_files_are_refused(pack):
    content = members(pack)
    name = next(each for each in content if each.endswith("done"))
    link = zipfile.ZipInfo(name)
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    file = content.pop(name)
    rewrite(pack, content, (link, file))
    assert "no regular file" in reason(pack)


def test_records_without_a_seal_are_not_packed(tmp_path):
    folder = write_record(tmp_path / "runs", CONFIG)
    (folder / "done").write_bytes(b"")
    with pytest.raises(UserError, match="seal"):
        write_pack(gather([folder]).records, tmp_path / "some.zip")


@pytest.fixture
def of_plugin(tmp_path):
    """A record that says it was made with the plugin mine.py, by code that is not this."""
    folder = write_record(tmp_path / "runs", CONFIG)
    amend(
        folder / "summary.json",
        lambda found: found["environment"].update(plugins="mine.py", code="0" * 64),
    )
    return gather([folder]).records


def test_plugins_that_records_need_have_to_be_loaded(of_plugin, tmp_path):
    with pytest.raises(UserError, match=r"--plugin mine\.py"):
        write_pack(of_plugin, tmp_path / "site" / "some.zip")
    assert not (tmp_path / "site").exists()


@pytest.fixture
def plugin(monkeypatch):
    monkeypatch.setenv(VARIABLE, "")  # which `main` sets to what is loaded
    monkeypatch.setitem(LOADED, "somewhere/mine.py", "mine")
    monkeypatch.setitem(SOURCES, "plugins/mine/mine.py", b"")


def test_a_pack_without_a_plugin_of_its_records_is_refused(of_plugin, plugin, tmp_path):
    pack = tmp_path / "some.zip"
    write_pack(of_plugin, pack)
    content = members(pack)
    assert content.pop("plugins/mine.py") == b""
    rewrite(pack, relisted(content))
    assert f"plugins/mine.py is missing, with which {of_plugin[0].folder.name} was made" in reason(pack)


def test_packing_says_that_a_plugin_may_have_changed_since(of_plugin, plugin, tmp_path, capsys):
    folder, out = of_plugin[0].folder, tmp_path / "site" / "some.zip"
    assert main(["pack", str(folder), "--out", str(out)]) == 0
    answer = capsys.readouterr()
    assert "1 records, 1 plugin file" in answer.out
    assert f"1 records of plugins, such as {folder.name}, were made by other code" in answer.err


def test_verdicts_stand_beside_the_pack_and_are_about_these_records(records, pack):
    verdict = {"verdict": "bit-equal", "record_digest": records[0].digest}
    with unpacked(pack) as found:
        assert read_verdicts(found) == {}
        file = write_verdicts(found, {records[0].folder.name: verdict})
        write_verdicts(found, {records[1].folder.name: verdict})  # of another record: not taken
        assert read_verdicts(found) == {records[0].folder.name: verdict}
        text = file.read_text()
        file.write_text(text.replace("bit-equal", "different"))
        assert read_verdicts(found) == {}
        file.write_text(text)
    write_pack(records[:1], pack)
    with unpacked(pack) as found:  # another pack of that name
        assert read_verdicts(found) == {}


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("{runs}",), ("--out is required",)),
        (("{runs}", "--out", "{tmp}/some.tar"), ("ends in .zip",)),
        (("{tmp}/nowhere", "--out", "{tmp}/some.zip"), ("there is no folder",)),
        (("{runs}", "--out", "{runs}/store.json/some.zip"), ("cannot write", "choose another folder")),
    ],
)
def test_bad_input(words, parts, records, tmp_path, capsys):
    runs = records[0].folder.parent
    code = main(["pack", *(word.format(runs=runs, tmp=tmp_path) for word in words)])
    refused((code, *capsys.readouterr()), *parts)
    assert not list(tmp_path.iterdir())
