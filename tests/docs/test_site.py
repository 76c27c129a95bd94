"""The documentation: every page has an example, every link leads somewhere, every command is one."""

import importlib.util
import posixpath
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from browser import Browser, find_browser
from own_images import clients_folder, encoded, write_parquet

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.cli import main, parser_of
from pfl_benchmark.commands import command_names, find_command
from pfl_benchmark.config import own_data
from pfl_benchmark.config.flags import config_of
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.config.weights import FILES
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.datasets.api import DATASETS, PARTITIONERS
from pfl_benchmark.datasets.own import OWN_DATA
from pfl_benchmark.datasets.registry import MODULES
from pfl_benchmark.experiment.card import GROUPS, read_docstring
from pfl_benchmark.models import ARCHITECTURES, NETWORKS
from pfl_benchmark.records import schema
from pfl_benchmark.records.sources import SOURCES
from pfl_benchmark.resolve.plugins import LOADED, VARIABLE, load_plugins, take_plugins
from pfl_benchmark.resolve.run import check_data, configure

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from docs.generate import pages, registries  # noqa: E402


@cache
def site():
    return pages.make()


def test_everything_has_a_page():
    made = set(site().pages)
    for folder, registry in (("methods", ALGORITHMS), ("datasets", DATASETS), ("networks", ARCHITECTURES)):
        names = {name for name in registry if not name.startswith("notebook")}
        assert {f"{folder}/{name}.md" for name in names} <= made
    assert {f"results/{path.stem}.md" for path in (ROOT / "results").glob("[a-z]*.md")} <= made
    for page, names in (("partitioners.md", PARTITIONERS), ("commands.md", command_names())):
        assert set(names) <= pages.anchors_of(site().pages[page])
    for field in RunConfig().to_dict():
        assert f"`{field}`" in site().pages["configuration.md"]


def test_a_method_has_its_card(algo):
    page, method = site().pages[f"methods/{algo}.md"], ALGORITHMS[algo]
    summary, parts = read_docstring(method)
    assert page.startswith(f"# {method.title}\n\n`--algo {algo}`. {summary}\n")
    for words in parts.values():
        assert words[1:] in page
    assert all(line in page for line in method.pseudocode)
    assert page.count('<svg class="flow"') == 1
    if method.publication is not None:
        title, _, _, year, link = method.publication
        assert f"[{title}]({link})" in page
        assert f"  year = {{{year}}},\n  url = {{{link}}}," in page
    index = site().pages["methods/index.md"]
    assert f"| [`{algo}`]({algo}.md) | {method.title} |" in index
    assert GROUPS[method.group] in [text for _, level, text, _ in pages.headings(index) if level == 2]


def test_methods_on_record_have_their_numbers():
    page = site().pages["methods/fedavg.md"]
    rows = re.findall(
        r"^\| `([\w-]+)` \| \d+\.\d+( ± \d+\.\d+)? \| \d+ \| [\d,.]+ \w+ \| [\d,]+ \|$", page, flags=re.M
    )
    assert {"cifar10-s2", "cifar10-s5"} <= {setting for setting, _ in rows}
    assert "**Measured.**" in page


def test_the_menu_has_every_page_once():
    def names(menu):
        for entry in [menu] if isinstance(menu, str) else menu:
            yield from names(*entry.values()) if isinstance(entry, dict) else [entry]

    listed = list(names(registries.navigation(site().pages)))
    assert sorted(listed) == sorted(site().pages)


def test_every_page_has_a_title_and_an_example():
    for path, text in site().pages.items():
        (_, level, *_), *_ = pages.headings(text)
        assert level == 1, path
        assert "\n```" in text, f"{path} has no example"
        assert "<!-- include" not in text, path
        assert "(``)" not in text, f"{path} has a link without a target"


def test_links_between_pages():
    for path, text in site().pages.items():
        for target in pages.links_of(text):
            place, _, anchor = target.partition("#")
            if re.match(r"https?:", target):
                continue
            found = posixpath.normpath(posixpath.join(posixpath.dirname(path), place)) if place else path
            assert found in site().pages or found in site().assets, f"{path} links {target}"
            if anchor:
                assert anchor in pages.anchors_of(site().pages[found]), f"{path} links {target}"
    for source in site().assets.values():
        assert source.is_file(), source


TRACKED = subprocess.run(
    ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout.split()


@pytest.mark.parametrize("name", TRACKED)
def test_links_in_the_checkout(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for target in pages.links_of(text):
        place, _, anchor = target.partition("#")
        if re.match(r"https?:", target):
            continue
        found = (ROOT / name).parent / place if place else ROOT / name
        assert found.exists(), f"{name} links {target}"
        if anchor and found.suffix == ".md":
            assert anchor in pages.anchors_of(found.read_text(encoding="utf-8")), f"{name} links {target}"


def test_records_are_told_field_by_field():
    text = site().pages["records.md"]
    rules = {**schema._ROUND, **schema._EVALUATED, **schema._SUMMARY, **schema._LATER}
    assert [name for name in rules if f"`{name}`" not in text] == []


# -- commands -------------------------------------------------------------------------------------------


def commands_in(text):
    """Command lines in blocks of code, without comments and pipes."""
    for block in re.findall(r"(?ms)^```\n(.*?)^```", text):
        for line in block.splitlines():
            if line.startswith(("python -m benchmark ", "./run_all.sh")):
                words = shlex.split(line.split(" | ")[0].split(" > ")[0], comments=True)
                yield words if words[0] != "python" else words[3:]


SOURCE = ROOT / "docs" / "site"
WRITTEN = [ROOT / name for name in ("README.md", "docs/commands.md", "docs/data.md")]
WRITTEN += sorted(SOURCE.rglob("*.md"))
HAND = {
    tuple(words): path.name for path in WRITTEN for words in commands_in(path.read_text(encoding="utf-8"))
}
EXAMPLES = re.findall(
    r"```python\n(.*?)```", (SOURCE / "quickstart.md").read_text(encoding="utf-8"), flags=re.S
)
# Besides `data` and `run` on data that need no files: what ends within seconds.
QUICK = ("list", "bound", "compare", "verify", "data", "pretrain", "run")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder in which the commands work as they do in a checkout; what they register is undone."""
    monkeypatch.chdir(tmp_path)
    for name in (VARIABLE, OWN_DATA, FILES):
        monkeypatch.setenv(name, "")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "paper").symlink_to(ROOT / "results" / "paper")
    for example in EXAMPLES:
        if "FastHead(Algorithm)" in example:
            (tmp_path / "fast_head.py").write_text(example, encoding="utf-8")
    clients_folder(tmp_path / "my_images")
    for form, name in (("leaf", "my_leaf"), ("pfllib", "MNIST"), ("pfllib", "exported")):
        assert main(["data", "--setting", "digits-s2", "--export", form, name]) == 0
    images = [encoded(x) for x in datasets.load("digits").train.x[:200]]
    labels = datasets.load("digits").train.y[:200]
    write_parquet(tmp_path / "my_images.parquet", images, labels)
    pq.write_table(
        pa.table({"img": images, "fine_label": labels}), tmp_path / "cifar100.parquet"
    )  # as on the Hub
    (tmp_path / "my.csv").write_text(
        "label,client,species,site,id,size\n"
        + "".join(f"{n % 2},{n % 3},{n % 2},{n % 3},{7 * n % 30},{n * n}\n" for n in range(30))
    )
    registries_ = (ALGORITHMS, ARCHITECTURES, DATASETS, MODULES, NETWORKS, SETTINGS, SOURCES, LOADED)
    kept = [(one, dict(one)) for one in (*registries_, own_data._LOADED)]
    ALGORITHMS.pop("fast-head", None)  # of whoever has saved the example in algorithms/
    yield tmp_path
    for registry, before in kept:
        registry.clear()
        registry.update(before)


def is_offline(words):
    """Whether a command names data that need no files."""
    at = words.index("--dataset") + 1 if "--dataset" in words else 0
    name = words[at] if at else ""
    return (":" in name and not name.startswith("hf:")) or (
        name in DATASETS and not DATASETS[name].needs_files
    )


def shortened(words):
    """The same run with two rounds of one epoch."""
    return [*words, "--rounds", "2", "--local-epochs", "1"]


def expanded(words):
    """Patterns of names of files, as a shell would."""
    for word in words:
        found = sorted(map(str, Path().glob(word))) if "*" in word else []
        yield from found or [word]


def test_commands_that_take_seconds_run(folder, capsys):
    """Those of README and of hand-written pages, in their order; runs are shortened."""
    ran = 0
    for words, page in HAND.items():
        if words[0] == "./run_all.sh":
            continue
        name = "run" if words[0].startswith("-") else words[0]
        rest = list(expanded(words))
        if name not in QUICK or (
            name in ("data", "pretrain", "run") and not is_offline(rest) and "--help" not in rest
        ):
            continue
        if name == "run" and "--help" not in rest:
            rest = shortened(rest)
        if any("FOLDER" in word or "RECORD" in word for word in rest):
            continue
        assert main(rest) == 0, f"{page}: {' '.join(rest)}\n{capsys.readouterr().err}"
        ran += 1
    assert ran > 20


_EXAMPLES = {"fast-head", "small-net", "power", "--exponent", "bars", "feature=upside-down"}


def test_all_commands_are_valid(folder):
    """Every command of the site: its flags are known, and what it would run can be run."""
    for file in ("digits.pt", "vit.pt"):  # what `pretrain`, or the package timm, would have written
        torch.save({}, file)
    generated = {tuple(w): path for path, text in site().pages.items() for w in commands_in(text)}
    for words, page in {**HAND, **generated}.items():
        if words[0] == "./run_all.sh":
            words = ("tables", *words[1:]) if words[1:2] and words[1].startswith("-") else ("--version",)
        examples = _EXAMPLES & {re.sub(r":[\d.]+$", "", word) for word in words}
        if examples or words == ("--version",) or any(word.startswith("hf:") for word in words):
            continue  # needs the network, or is made by the test of the examples of docs/site/extend
        plugins, rest = take_plugins([word for word in words if word not in ("…", "...")])
        name = "run" if rest[0].startswith("-") else rest[0]
        if any(word.isupper() and word not in ("HOST:PORT",) for word in rest[1:]) and name not in (
            "run",
            "data",
        ):
            continue  # with a place-holder
        load_plugins(plugins)
        command = find_command(name)
        rest = rest if name == "run" and rest[0] != "run" else rest[1:]
        if "--help" in rest:
            continue
        given = parser_of(name, command).parse(list(rest))
        if name == "run":
            configure(given)
        elif name == "data":
            check_data(config_of(given)[1])
        assert page


# -- as MkDocs makes it -----------------------------------------------------------------------------------

MKDOCS = all(map(importlib.util.find_spec, ("mkdocs", "material", "mkdocstrings")))


def one_of_a_kind(built):
    """All pages but those of single methods, datasets and networks, of which one each."""
    generated = [page for page in built if page.parent.name in ("methods", "datasets", "networks")]
    return [page for page in built if page not in generated or page.stem in ("index", "ppfe", "cifar10")]


@pytest.mark.skipif(
    not (MKDOCS and find_browser()), reason="needs Chromium and what ./run_all.sh docs installs"
)
def test_the_site_in_a_browser(tmp_path):
    """Nothing from the net, nothing wider than the window, no complaint."""
    words = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    words += ["--config-file", "docs/mkdocs.yml", "--site-dir", str(tmp_path / "site")]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    built = sorted((tmp_path / "site").rglob("*.html"))
    assert len(built) == len(site().pages)
    browser = Browser(find_browser())
    try:
        for page in one_of_a_kind(built):
            for width in (1280, 390):
                browser.requests.clear()
                browser.complaints.clear()
                browser.show(page, width=width)
                wider = browser.run("document.documentElement.scrollWidth - innerWidth")
                elsewhere = [one for one in browser.requests if re.match(r"https?:", one)]
                missing = [one for one in browser.complaints if "favicon" not in str(one)]
                assert (wider <= 0, elsewhere, missing) == (True, [], []), (page.name, width)
    finally:
        browser.close()
