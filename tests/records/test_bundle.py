"""Bundles: what they hold, and what is refused in a stranger's."""

import errno
import hashlib
import json
import stat
import sys
import zipfile
from types import ModuleType

import pytest
from answers import refused
from damages import CONFIG, damages
from record_folders import amend, with_seed, write_record

import pfl_benchmark.records.bundle as archive
from pfl_benchmark.cli import main
from pfl_benchmark.errors import UserError
from pfl_benchmark.records.bundle import read_verdicts, unpacked, write_bundle, write_verdicts
from pfl_benchmark.records.seal import seal_of
from pfl_benchmark.records.sources import SOURCES
from pfl_benchmark.records.store import gather
from pfl_benchmark.resolve.plugins import LOADED, VARIABLE


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        write_record(root, with_seed(CONFIG, seed))
    return gather([root]).records


@pytest.fixture
def bundle(records, tmp_path):
    path = tmp_path / "some.zip"
    write_bundle(records, path)
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
    """The same members with a bundle.json that lists them as they are: what a forger would do."""
    about = json.loads(content["pack.json"])
    about["files"] = {n: hashlib.sha256(f).hexdigest() for n, f in content.items() if n != "pack.json"}
    return {**content, "pack.json": json.dumps(about).encode()}


def reason(path):
    """Why a bundle is refused."""
    with pytest.raises(UserError) as caught, unpacked(path):
        pass
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


def complaint(path, expected=()):
    """Why a bundle is refused; empty if it is not, and holds the records that are expected."""
    try:
        with unpacked(path) as found:
            same = {record.digest for record in found.records} == {record.digest for record in expected}
            return "" if same or (not expected and len(found.records) == 2) else "other records"
    except UserError as error:
        return str(error)


def test_records_come_out_as_they_went_in(records, bundle):
    with unpacked(bundle) as found:
        assert {r.folder.name: r.digest for r in found.records} == {r.folder.name: r.digest for r in records}
        assert found.digest == hashlib.sha256(bundle.read_bytes()).hexdigest()
        assert not found.plugins
        inside = found.records[0].folder
    assert not inside.exists()


def test_the_same_records_make_the_same_pack(records, bundle, tmp_path):
    write_bundle(records[::-1], tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == bundle.read_bytes()


def test_it_names_data_versions_and_environments(records, bundle):
    about = json.loads(members(bundle)["pack.json"])
    assert {data["dataset"] for data in about["data"]} == {"digits"}
    assert "torch" in about["packages"]
    assert sum(each["records"] for each in about["environments"]) == len(records)


def test_only_sealed_files_are_packed(records, bundle):
    names = {name.rpartition("/")[2] for name in members(bundle)}
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
def test_no_path_leads_outside(name, bundle, tmp_path):
    rewrite(bundle, relisted({**members(bundle), name: b"evil"}))
    before = sorted(tmp_path.rglob("*"))
    assert "leads outside" in reason(bundle)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ODD)
def test_other_files_are_refused(name, bundle):
    rewrite(bundle, relisted({**members(bundle), name: b"evil"}))
    assert f"{name} is no name of a file in a bundle" in reason(bundle)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_is_there_twice_is_refused(bundle):
    content = members(bundle)
    name = next(name for name in content if name.endswith("done"))
    rewrite(bundle, content, (name, b"other"))
    assert f"{name} is there twice" in reason(bundle)
    other = name.replace("fedavg", "FedAvg")
    rewrite(bundle, relisted({**content, other: content[name]}))
    assert "is there twice" in reason(bundle)


@pytest.mark.parametrize(
    "name", ["pack.json", "config.json", "rounds.jsonl", "clients.csv", "summary.json", "done"]
)
def test_a_file_that_is_missing_is_named(name, bundle):
    content = members(bundle)
    gone = next(each for each in content if each.endswith(name))
    del content[gone]
    rewrite(bundle, content)
    assert gone in reason(bundle)
    if name != "pack.json":
        rewrite(bundle, relisted(content))
        assert gone in reason(bundle)


def test_a_file_that_is_not_listed_is_named(bundle):
    name = "plugins/more.py"
    rewrite(bundle, {**members(bundle), name: b"evil"})
    assert f"{name} is not listed" in reason(bundle)


def test_one_changed_digit_is_found(bundle):
    """By the pack's checksums; if these were made again by the seal; if that was, too, by other figures."""
    content = members(bundle)
    name = next(each for each in content if each.endswith("summary.json"))
    changed = {**content, name: content[name].replace(b'"accuracy": 0.', b'"accuracy": 0.1', 1)}
    rewrite(bundle, changed)
    assert f"{name} is not as it was packed" in reason(bundle)
    rewrite(bundle, relisted(changed))
    assert "summary.json is not as it was sealed" in reason(bundle)
    folder = name.removesuffix("summary.json")
    inner = {each.removeprefix(folder): file for each, file in changed.items() if each.startswith(folder)}
    del inner["done"]
    rewrite(bundle, relisted({**changed, f"{folder}done": seal_of(inner).encode()}))
    assert "accuracy" in reason(bundle)


@pytest.mark.parametrize("damage", [*damages()][::6])
def test_records_are_read_as_carefully_as_in_folders(damage, bundle):
    file, change = damages()[damage]
    content = members(bundle)
    places = [name for name in content if name.endswith(f"/{file}")]
    for name in places[:1]:
        content[name] = change(content[name])
    rewrite(bundle, relisted(content))
    # Without its seal a record may be used as it is, like one of an older version.
    assert complaint(bundle).count("\n") == 0
    assert complaint(bundle) == "" or complaint(bundle).startswith(f"{bundle} cannot be used as a bundle")


@pytest.mark.parametrize(
    "about", [b"", b"[]", b"{}", b'{"format": 1}', b"[" * 100_000, b"\xff", b'{"format": 2}']
)
def test_a_pack_without_a_list_of_its_files_is_refused(about, bundle):
    rewrite(bundle, {**members(bundle), "pack.json": about})
    assert "pack.json" in reason(bundle)


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\3\4" + b"\0" * 100, b"text"])
def test_what_is_no_zip_file_is_refused(content, tmp_path):
    path = tmp_path / "some.zip"
    path.write_bytes(content)
    reason(path)


def test_half_a_zip_file_and_flipped_bytes_are_refused_or_change_nothing(records, bundle):
    whole, refused = bundle.read_bytes(), 0
    bundle.write_bytes(whole[: len(whole) // 2])
    reason(bundle)
    for place in range(40, len(whole), len(whole) // 40):
        bundle.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        # Some bytes mean nothing, such as the moment of a file.
        problem = complaint(bundle, records)
        assert problem == "" or problem.startswith(f"{bundle} cannot be used as a bundle: ")
        assert "\n" not in problem
        refused += bool(problem)
    assert refused > 30


def test_too_much_is_refused_before_it_is_unpacked(bundle, monkeypatch):
    content = members(bundle)
    name = next(each for each in content if each.endswith("rounds.jsonl"))
    monkeypatch.setattr(archive, "LARGEST", 10_000)
    rewrite(bundle, relisted({**content, name: b"0" * 1_000_000}))
    monkeypatch.setattr(zipfile.ZipFile, "open", None)
    assert "1,000,000 bytes; expected at most 10,000" in reason(bundle)


@pytest.mark.parametrize(("limit", "value"), [("MOST", 5), ("LARGEST_IN_ALL", 100), ("LARGEST", 100)])
def test_limits_hold_for_those_who_write_as_well(limit, value, records, tmp_path, monkeypatch):
    monkeypatch.setattr(archive, limit, value)
    with pytest.raises(UserError, match="make several bundles"):
        write_bundle(records, tmp_path / "some.zip")
    assert not (tmp_path / "some.zip").exists()


@pytest.mark.parametrize("name", ["CON", "nul", "Com1", "lpt9"])
def test_plugins_called_like_a_device_are_refused(name, bundle):
    rewrite(bundle, relisted({**members(bundle), f"plugins/{name}.py": b"x = 1"}))
    assert f"plugins/{name}.py is no name of a file" in reason(bundle)


def test_large_plugins_are_refused_before_they_are_unpacked(bundle, monkeypatch):
    large = {f"plugins/p{number}.py": b"#" * 2**23 for number in range(3)}
    rewrite(bundle, {**members(bundle), **large})
    monkeypatch.setattr(archive, "_content", None)
    assert "plugins/p0.py has 8,388,608 bytes; expected at most 4,194,304" in reason(bundle)


def test_records_with_an_empty_seal_are_refused(bundle):
    content = members(bundle)
    name = next(name for name in content if name.endswith("/done"))
    rewrite(bundle, relisted({**content, name: b""}))
    assert f"{name} is empty: its record is not sealed" in reason(bundle)


def test_links_and_encrypted_files_are_refused(bundle):
    content = members(bundle)
    name = next(each for each in content if each.endswith("done"))
    link = zipfile.ZipInfo(name)
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    file = content.pop(name)
    rewrite(bundle, content, (link, file))
    assert "no regular file" in reason(bundle)


def test_records_without_a_seal_are_not_packed(tmp_path):
    folder = write_record(tmp_path / "runs", CONFIG)
    (folder / "done").write_bytes(b"")
    with pytest.raises(UserError, match="seal"):
        write_bundle(gather([folder]).records, tmp_path / "some.zip")


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
        write_bundle(of_plugin, tmp_path / "site" / "some.zip")
    assert not (tmp_path / "site").exists()


@pytest.fixture
def plugin(monkeypatch):
    monkeypatch.setenv(VARIABLE, "")  # which `main` sets to what is loaded
    monkeypatch.setitem(LOADED, "somewhere/mine.py", "mine")
    monkeypatch.setitem(SOURCES, "plugins/mine/mine.py", b"")


def test_a_pack_without_a_plugin_of_its_records_is_refused(of_plugin, plugin, tmp_path):
    bundle = tmp_path / "some.zip"
    write_bundle(of_plugin, bundle)
    content = members(bundle)
    assert content.pop("plugins/mine.py") == b""
    rewrite(bundle, relisted(content))
    assert f"plugins/mine.py is missing, with which {of_plugin[0].folder.name} was made" in reason(bundle)


def test_packing_says_that_a_plugin_may_have_changed_since(of_plugin, plugin, tmp_path, capsys):
    folder, out = of_plugin[0].folder, tmp_path / "site" / "some.zip"
    assert main(["pack", str(folder), "--out", str(out)]) == 0
    answer = capsys.readouterr()
    assert "1 records, 1 plugin file" in answer.out
    assert f"1 records of plugins, such as {folder.name}, were made by other code" in answer.err


def test_nothing_is_written_where_the_code_cannot_be_told(of_plugin, plugin, tmp_path, monkeypatch):
    def fail(*_):
        raise UserError("something else")

    monkeypatch.setattr("pfl_benchmark.resolve.code.outdated", fail)
    assert main(["pack", str(of_plugin[0].folder), "--out", str(tmp_path / "some.zip")]) == 2
    assert not (tmp_path / "some.zip").exists()


def test_records_whose_data_are_not_here_are_packed(of_plugin, plugin, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("pfl_benchmark.config.network.knows_network", lambda _: False)
    out = tmp_path / "some.zip"
    assert main(["pack", str(of_plugin[0].folder), "--out", str(out)]) == 0
    assert "their method, data or network is not here" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["here", "site-packages"])
def test_a_plugin_that_imports_a_file_is_refused(place, of_plugin, plugin, tmp_path, monkeypatch):
    helper = ModuleType("my_helper")
    helper.__file__ = str(tmp_path / place / "my_helper.py")
    monkeypatch.setitem(sys.modules, "my_helper", helper)
    source = b"import os\nimport numpy\nfrom pfl_benchmark.method import register\nfrom my_helper import x\n"
    monkeypatch.setitem(SOURCES, "plugins/mine/mine.py", source)
    if place == "site-packages":
        write_bundle(of_plugin, tmp_path / "some.zip")
    else:
        with pytest.raises(UserError, match="imports my_helper, a file of yours"):
            write_bundle(of_plugin, tmp_path / "some.zip")


def test_plugins_come_after_those_that_they_import(tmp_path):
    texts = {
        "amine": "from plugin_zbase import Z",
        "middle": "import plugin_amine",
        "zbase": "plugin_zbase = 1",
    }
    files = [tmp_path / f"{name}.py" for name in texts]
    for file in files:
        file.write_text(texts[file.stem])
    assert [file.stem for file in archive._in_order(files)] == ["zbase", "amine", "middle"]
    files[2].write_text("import plugin_middle")
    assert archive._in_order(files) == files


def test_a_full_temporary_folder_is_said(bundle, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    found = reason(bundle)
    assert "cannot be unpacked into" in found
    assert "No space left on device" in found
    assert "TMPDIR" in found


def test_verdicts_stand_beside_the_pack_and_are_about_these_records(records, bundle):
    verdict = {"verdict": "bit-equal", "record_digest": records[0].digest}
    with unpacked(bundle) as found:
        assert read_verdicts(found) == {}
        file = write_verdicts(found, {records[0].folder.name: verdict})
        write_verdicts(found, {records[1].folder.name: verdict})  # of another record: not taken
        assert read_verdicts(found) == {records[0].folder.name: verdict}
        text = file.read_text()
        file.write_text(text.replace("bit-equal", "different"))
        assert read_verdicts(found) == {}
        file.write_text(text)
    write_bundle(records[:1], bundle)
    with unpacked(bundle) as found:  # another bundle of that name
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
