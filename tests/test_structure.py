"""Rules of the project: imports go down, the engine knows no method, everything public is documented."""

import ast
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

from pfl_benchmark.algorithms import ALGORITHMS

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("benchmark", "algorithms", "datasets")


def modules_in(folder):
    return sorted(path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)


def relative(path):
    return str(path.relative_to(ROOT))


EVERY_MODULE = [relative(path) for package in PACKAGES for path in modules_in(package)]
ENGINE = [relative(path) for path in modules_in("benchmark/engine")]


@cache
def tree_of(module):
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


def imports_of(module):
    """Full names of what a module imports, wherever in it."""
    package = list(Path(module).parts[:-1])
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                # a module and what is in it alike
                yield f"{start}.{alias.name}"


def named(module):
    """The name by which a module is imported, of its path in the checkout."""
    first, *rest = Path(module).with_suffix("").parts
    parts = rest if first == "benchmark" else [first, *rest]
    return ".".join(["pfl_benchmark", *parts])


def own(names):
    """Imports from this project."""
    return [name for name in names if name.split(".")[0] in ("pfl_benchmark", *PACKAGES)]


def within(name, *allowed):
    return any(name == place or name.startswith(f"{place}.") for place in allowed)


# Imports only go down

# From the bottom up; rooms in one tuple do not know each other.
FLOORS = (
    ("pfl_benchmark.installation",),
    ("pfl_benchmark.errors",),
    ("pfl_benchmark.console", "pfl_benchmark.render"),
    ("pfl_benchmark.datasets",),
    ("pfl_benchmark.models",),
    ("pfl_benchmark.config",),
    ("pfl_benchmark.records",),
    ("pfl_benchmark.engine",),
    ("pfl_benchmark.method",),
    ("pfl_benchmark.algorithms",),
    ("pfl_benchmark.resolve",),
    ("pfl_benchmark.track",),
    ("pfl_benchmark.studies",),
    ("pfl_benchmark.experiment",),
    ("pfl_benchmark.present", "pfl_benchmark.launch"),
    ("pfl_benchmark.speed", "pfl_benchmark.check", "pfl_benchmark.papers"),
    ("pfl_benchmark.interface", "pfl_benchmark.doctor"),
    ("pfl_benchmark.commands",),
    ("pfl_benchmark.cli",),
    ("pfl_benchmark.__main__",),
)
FLOOR = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
ANYWHERE = ("pfl_benchmark", "pfl_benchmark.__version__")


def room_of(name):
    """The room of a module or of what is imported from it; the project's root where it is none."""
    return ".".join(name.split(".")[:2])


def test_imports_only_go_down():
    """Those inside of functions and under TYPE_CHECKING included."""
    wrong = []
    for module in EVERY_MODULE:
        room = room_of(named(module))
        if room in ("pfl_benchmark.__init__", "pfl_benchmark.aliases"):
            known = {*FLOORS[0]}
        else:
            known = {room, *ANYWHERE, *(other for other, level in FLOOR.items() if level < FLOOR[room])}
        for name in own(imports_of(module)):
            if not known & {name, room_of(name)}:
                wrong.append(f"{module} imports {name}, which is no floor below {room}")
    assert wrong == []


def test_the_top_level_holds_rooms():
    loose = {path.name for path in (ROOT / "benchmark").glob("*.py")}
    known = {
        "__init__.py",
        "__main__.py",
        "aliases.py",
        "cli.py",
        "errors.py",
        "installation.py",
        "method.py",
    }
    assert loose == known


def imported(modules, condition):
    """By module, what it imports of this project and fulfils a condition."""
    found = {module: [name for name in own(imports_of(module)) if condition(name)] for module in modules}
    return {module: names for module, names in found.items() if names}


def test_datasets_know_nothing_but_errors():
    modules = [relative(path) for path in modules_in("datasets")]
    assert (
        imported(modules, lambda name: not within(name, "pfl_benchmark.datasets", "pfl_benchmark.errors"))
        == {}
    )


def test_methods_import_the_public_face_alone():
    """So do the worked examples; the package of the methods itself knows the registry."""
    modules = [
        relative(path)
        for path in modules_in("algorithms")
        if path.parent.name != "algorithms" or path.stem != "__init__"
    ]
    modules += [relative(path) for path in (ROOT / "examples").glob("*.py")]
    allowed = ("pfl_benchmark.algorithms", "pfl_benchmark.method")
    assert imported(modules, lambda name: not within(name, *allowed)) == {}


def test_nothing_imports_a_pack():
    modules = [name for name in EVERY_MODULE if "/papers/" not in name]
    assert imported(modules, lambda name: within(name, "pfl_benchmark.papers")) == {}


def test_no_module_imports_itself_by_way_of_others():
    """No loop of imports, those inside of functions and under TYPE_CHECKING included."""
    modules = {named(module).removesuffix(".__init__"): module for module in EVERY_MODULE}
    imports = {
        name: {
            found if found in modules else found.rpartition(".")[0]
            for found in own(imports_of(module))
            if found in modules or found.rpartition(".")[0] in modules
        }
        for name, module in modules.items()
    }
    # A package that lists its modules' names is no loop: what counts is who needs whom to be there first.
    free: set[str] = set()
    while ready := {name for name in imports if name not in free and imports[name] <= free | {name}}:
        free |= ready
    assert sorted(set(imports) - free) == []


def test_no_import_inside_the_engine_hides_in_a_function():
    for module in ENGINE:
        inside = [
            node
            for function in ast.walk(tree_of(module))
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
            if isinstance(node, (ast.Import, ast.ImportFrom))
        ]
        assert inside == [], module


# The engine names no method


def names_in(tree):
    """Strings that are not documentation, and identifiers."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node.name


def test_the_engine_names_no_method():
    methods = {*ALGORITHMS, *(method.__name__ for method in ALGORITHMS.values())}
    named = {(module, name) for module in ENGINE for name in names_in(tree_of(module)) if name in methods}
    # A command line without --algo has to mean something.
    assert named <= {("benchmark/config/run_config.py", "fedavg")}


# Everything public is documented


def test_docstrings():
    """Of every module, and of its public classes and functions."""
    without = []
    for module in EVERY_MODULE:
        tree = tree_of(module)
        public = [
            node
            for node in tree.body
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_")
            if not any(ast.unparse(each) == "overload" for each in node.decorator_list)
        ]
        without += [(module, getattr(n, "name", "")) for n in (tree, *public) if not ast.get_docstring(n)]
    assert without == []


# Imports


def test_every_module_imports_without_optional_packages_and_has_what_it_exports():
    """In a fresh process in which wandb, ray, torchtext, safetensors, optuna and timm cannot be found."""
    program = """
import importlib, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("wandb", "ray", "torchtext", "safetensors", "optuna", "timm"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    missing = [export for export in getattr(module, "__all__", ()) if not hasattr(module, export)]
    assert not missing, f"{name} exports {missing}, which it does not have"
"""
    names = [
        named(module).removesuffix(".__init__")
        for module in EVERY_MODULE
        if not module.endswith("__main__.py")
    ]
    done = subprocess.run(
        [sys.executable, "-c", program, *names], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_version_to_cite_is_the_projects():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"\nversion: {project['version']}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_what_fast_leaves_out_is_there():
    """Every line of these files names a folder, a file, or a test in a file."""
    missing = []
    files = [ROOT / "tests" / name for name in ("slow.txt", "heavy.txt")]
    for line in " ".join(file.read_text(encoding="utf-8") for file in files).split():
        place, _, name = line.partition("::")
        path = ROOT / place
        if not path.exists() or (name and f"\ndef {name}(" not in path.read_text(encoding="utf-8")):
            missing.append(line)
    assert missing == []
