"""What counts as the code of a run, and when a record's is another."""

import ast
import json
import re
import sys
from pathlib import Path

import pytest
from proven_equal import ROOT, paired

import pfl_benchmark
from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.datasets.api import DATASETS
from pfl_benchmark.datasets.registry import MODULES
from pfl_benchmark.models import NETWORKS
from pfl_benchmark.records import seal, sources
from pfl_benchmark.records.sources import SOURCES, digest, imported, path_of, read
from pfl_benchmark.resolve.code import _digest, code_of, outdated

PACKAGE = Path(pfl_benchmark.__file__).parent


def test_all_code_that_computes_rounds_counts():
    """Otherwise a beginning computed before an edit would be taken for the edited code's."""
    assert {"benchmark/experiment/prepare.py", "algorithms/ppfe/stages.py", "datasets/splits.py"} < set(
        SOURCES
    )
    assert {"benchmark/engine/sgd.py", "benchmark/models/network.py"} < set(SOURCES)
    assert not any(name.startswith(("tests/", "benchmark/present/tables/")) for name in SOURCES)
    own = {name: text for name, text in SOURCES.items() if not name.startswith("plugins/")}
    assert read(PACKAGE) == own  # other tests may have loaded plugins


IMPORT = "from pfl_benchmark.method import option\n"
OPTION = IMPORT + 'class Hyper:\n    lam: float = option(1.0, "weight λ", least=0, search=(0.1, 1))'


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ("weight λ", "weight of the pull", False),
        (", search=(0.1, 1)", "", False),
        ("1.0", "2.0", True),
        ("least=0", "least=0.1", True),
        ("lam", "mu", True),
        (" = option", " = other", True),
        ("pfl_benchmark.method", "mine", True),
        ('"weight λ"', "words", True),
    ],
)
def test_what_options_say_of_themselves_does_not_count(old, new, counts):
    one, other = ({"algorithms/mine.py": text.encode()} for text in (OPTION, OPTION.replace(old, new)))
    assert (digest(one) != digest(other)) == counts


@pytest.mark.parametrize(
    "text",
    [IMPORT + 'x = option(1, "{}")', 'from mine import option\nclass N:\n    x: str = option(1, "{}")'],
)
def test_functions_of_that_name_elsewhere_count(text):
    one, other = ({"algorithms/mine.py": text.format(word).encode()} for word in "ab")
    assert digest(one) != digest(other)


def test_links_that_lead_nowhere_are_no_code(tmp_path):
    """Emacs leaves them while a file is edited."""
    (tmp_path / "algorithms").mkdir()
    (tmp_path / "algorithms" / "mine.py").write_text("x = 1")
    (tmp_path / "algorithms" / ".#mine.py").symlink_to("nowhere")
    assert read(tmp_path) == {"algorithms/mine.py": b"x = 1"}


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("from pfl_benchmark.algorithms.other import Other", True),
        ("from pfl_benchmark.algorithms import other", True),
        ("import pfl_benchmark.algorithms.other", True),
        ("from .other import Other", True),
        ("from . import other", True),
        ("from pfl_benchmark.engine.other import Other", False),
        ("other = 1", False),
        ("this is no Python", False),
    ],
)
@pytest.mark.parametrize("module", ["algorithms/other.py", "algorithms/other/deep/parts.py"])
def test_imports_of_other_methods_are_found(line, counts, module):
    code = {"algorithms/mine.py": line.encode(), module: b"", "benchmark/engine/other.py": b""}
    assert imported(["mine"], code) == {"algorithms/mine.py", *([module] if counts else [])}


def test_imports_are_followed_and_packages_count_whole():
    code = {
        "algorithms/mine.py": b"from pfl_benchmark.algorithms.package import Part",
        "algorithms/package/__init__.py": b"from pfl_benchmark.algorithms.package.part import Part",
        "algorithms/package/part.py": b"from pfl_benchmark.algorithms import base",
        "algorithms/package/unused.py": b"",
        "algorithms/base.py": b"import pfl_benchmark.algorithms.mine",  # a circle
        "algorithms/stranger.py": b"",
    }
    assert imported(["mine"], code) == set(code) - {"algorithms/stranger.py"}


def test_a_method_imports_its_bases(algo):
    bases = {f"{path_of(cls.__module__)}.py" for cls in ALGORITHMS[algo].__mro__}
    found = imported([ALGORITHMS[algo].__module__.split(".")[2]], SOURCES)
    assert {name for name in bases if name.startswith("algorithms/")} <= found
    assert found < set(SOURCES)


# Records


@pytest.fixture
def edited(monkeypatch):
    """``edited("datasets/splits.py")``: as if that module had been changed since."""

    def edit(name):
        monkeypatch.setitem(SOURCES, name, SOURCES.get(name, b"") + b"\nx = 1")
        _digest.cache_clear()

    yield edit
    monkeypatch.undo()
    _digest.cache_clear()


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("algorithms/fedper.py", True),
        ("algorithms/fedrep.py", False),
        ("algorithms/new.py", False),
        ("benchmark/engine/sgd.py", True),
        ("benchmark/models/layers.py", True),
        ("benchmark/models/catalogue.py", False),
        ("benchmark/experiment/prepare.py", True),
        ("datasets/splits.py", True),
        ("datasets/partitioners/base.py", True),
        ("datasets/partitioners/distinct.py", True),
        ("datasets/partitioners/shards.py", False),
        ("datasets/partitioners/new.py", False),
        ("datasets/catalogue/digits.py", True),
        ("datasets/catalogue/new.py", False),
    ],
)
def test_edits_of_what_computes_a_run_make_its_record_outdated(name, counts, tiny, edited):
    config = tiny("fedper")
    summary = {"environment": {"code": code_of(config)}}
    assert not outdated(config, summary)
    edited(name)
    assert outdated(config, summary) == counts


def test_the_base_of_a_partitioner_counts(tiny, edited):
    before = code_of(tiny("fedper", partition="shards"))
    edited("datasets/partitioners/distinct.py")
    assert code_of(tiny("fedper", partition="shards")) != before


def test_another_network_makes_its_records_outdated(tiny, monkeypatch):
    config = tiny("fedper")
    summary = {"environment": {"code": code_of(config)}}
    monkeypatch.setitem(NETWORKS, "new", NETWORKS["digits"])
    assert not outdated(config, summary)
    monkeypatch.setitem(NETWORKS, "digits", NETWORKS["cifar10"])
    assert outdated(config, summary)


def test_some_rounds_of_other_code_make_a_record_outdated(tiny):
    config = tiny("fedper")
    ours = {"code": code_of(config)}
    assert not outdated(config, {"environment": ours, "origins": [ours, {"executor": "loop"}]})
    assert outdated(config, {"environment": ours, "origins": [{"code": "other"}, ours]})
    assert not outdated(config, {"environment": {}})  # made before records told it


@pytest.mark.parametrize("by", ["record", "verdict"])
def test_a_proof_that_code_is_equal_ends_with_the_next_edit(by, tiny, edited, monkeypatch):
    config = tiny("fedper")
    proven = {"old": code_of(config), "older": "something else"}
    monkeypatch.setattr(sources, "_proven", lambda: proven)
    verdict = {"code": "old", "verdict": seal.BIT_EQUAL}
    made, verified = ("old", {}) if by == "record" else ("of no list", verdict)
    assert outdated(config, {"environment": {"code": "of no list"}})
    assert outdated(config, {"environment": {"code": "older"}})
    assert not outdated(config, {"environment": {"code": made}}, verified)
    edited("benchmark/engine/sgd.py")
    assert outdated(config, {"environment": {"code": made}}, verified)


def test_the_list_of_proofs_says_what_was_compared():
    path = PACKAGE / "records" / "proven_equal.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    assert {*found} == {"evidence", "equal"}
    assert bool(found["evidence"]) == bool(found["equal"])
    assert path.stat().st_size < 100_000
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for pair in found["equal"].items() for digest in pair)


def test_one_old_digest_stands_for_one_new_one():
    assert paired(["a", "a", "b"], ["x", "x", "y"], {}) == {"a": "x", "b": "y"}
    assert paired(["a"], ["x"], {"older": "a", "gone": "z"}) == {"a": "x", "older": "x"}
    for old, new in (["a", "a"], ["x", "y"]), (["a", "b"], ["x", "x"]):
        with pytest.raises(SystemExit, match="stands for two"):
            paired(old, new, {})


def test_committed_verdicts_are_still_read():
    """Their checksums are of a form that may not change."""
    found = [*(ROOT / "results").rglob("verified.json")]
    assert found
    for path in found:
        digest = json.loads(path.read_text(encoding="utf-8"))["record_digest"]
        assert seal.read_verdict(path.parent, digest), path


def test_a_method_from_a_script_counts(tiny, tmp_path, monkeypatch):
    (tmp_path / "script.py").write_text("x = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("script")
    namings = {"name": "own", "title": "Own", "reference": "none"}
    own = type("Own", (ALGORITHMS["fedavg"],), {**namings, "__module__": "script"})
    monkeypatch.setitem(ALGORITHMS, "own", own)
    before = code_of(tiny("own"))
    (tmp_path / "script.py").write_text("x = 2")
    _digest.cache_clear()
    assert code_of(tiny("own")) != before
    notebook = type("Notebook", (own,), {**namings, "__module__": "__main__"})
    monkeypatch.setitem(ALGORITHMS, "own", notebook)
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    assert code_of(tiny("own"))  # what is nowhere written down cannot count


def test_every_dataset_has_its_module():
    assert set(MODULES) == set(DATASETS)
    assert {f"{path_of(name)}.py" for name in MODULES.values()} < set(SOURCES)


# What counts of a module


def digest_of(text):
    return digest({"algorithms/step.py": text.encode()})


CODE = '''"""A module."""

from typing import TYPE_CHECKING

from here import Kind

if TYPE_CHECKING:
    from there import Other

__all__ = ["Step"]

KINDS: dict[str, Kind] = {}  # by name
"""Kinds of steps."""


@register("step")
class Step:
    """A step."""

    rate: float = 0.1
    name: str

    async def take(self, x: Tensor, *more: int, reduction: str = "mean") -> Tensor:
        """Go on."""
        import math
        found: Tensor
        if x is None:
            raise ValueError("x is None")
        return 0.1 * x
'''


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("A module.", "Another one.", True),
        ("Kinds of steps.", "All kinds.", True),
        ("A step.", "One step of it.", True),
        ('        """Go on."""\n', "", True),
        ("# by name", "# by their names", True),
        ("0.1 * x", "(0.1  *  x)", True),
        ("from typing import TYPE_CHECKING\n", "import typing\n", True),
        ("from here import Kind\n", "", True),
        ("        import math\n", "", True),
        ("if TYPE_CHECKING", "if typing.TYPE_CHECKING", True),
        ("    from there import Other", "    class Other: ...", True),
        ("if TYPE_CHECKING", "if True", False),
        ('["Step"]', '["Step", "KINDS"]', True),
        ("KINDS: dict[str, Kind] = {}", "KINDS = {}", True),
        ("rate: float = 0.1", "rate: int = 0.1", True),
        ("rate: float = 0.1", "rate = 0.1", True),
        ("rate: float = 0.1", "rate: float = 0.2", False),
        ("rate: float = 0.1", "rate: float", False),
        ("name: str", "name: bytes", True),
        ("name: str", "title: str", False),
        ("    name: str\n", "", False),
        ("x: Tensor, *more: int, reduction: str", "x, *more, reduction", True),
        (") -> Tensor:", "):", True),
        ("        found: Tensor\n", "", True),
        ('x is None")', 'it is None")', True),
        ("ValueError", "TypeError", False),
        ("if x is None", "if x is not None", False),
        ("0.1 *", "0.2 *", False),
        ("        return", "        x = x + 1\n        return", False),
        ('"mean"', '"sum"', False),
        ('@register("step")\n', "", False),
        ("(self, x: Tensor, ", "(self, x, y=1, ", False),
    ],
)
def test_only_what_computes_makes_other_code(before, after, same):
    assert before in CODE
    ast.parse(CODE.replace(before, after))
    assert (digest_of(CODE) == digest_of(CODE.replace(before, after))) == same


def test_line_ends_make_no_other_code():
    assert digest_of(CODE) == digest_of(CODE.replace("\n", "\r\n"))


def test_a_module_that_computes_nothing_does_not_count():
    assert digest({"algorithms/__init__.py": b"from here import Kind"}) == digest({})


def test_a_file_that_is_no_python_counts_byte_by_byte():
    """Such as editors and file systems leave behind."""
    assert len({digest({"datasets/._half.py": content}) for content in (b"def (", b"def  (", b"\0")}) == 3


def test_the_same_code_elsewhere_is_other_code():
    assert digest({"algorithms/a.py": b"x = 1"}) != digest({"algorithms/b.py": b"x = 1"})


@pytest.mark.parametrize("name", ["group", "publication", "pseudocode"])
def test_what_a_method_says_of_itself_is_no_code(name):
    """But a variable of that name outside of a class is."""
    bare = b"class A:\n    x = 1\n"
    for value in (b"'a'", b"('a', 1)"):
        assert digest({"algorithms/a.py": bare + b"    " + name.encode() + b" = " + value}) == digest(
            {"algorithms/a.py": bare}
        )
    assert digest({"algorithms/a.py": bare + name.encode() + b" = 1"}) != digest({"algorithms/a.py": bare})
