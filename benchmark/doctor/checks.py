"""The checks, one function each."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pfl_benchmark.installation import CHECKOUT, requirements, with_program

_LEAST = (3, 11)
_OPTIONAL = {  # what needs them
    "wandb": "--wandb",
    "wandb-workspaces": "report --wandb",
    "tensorboard": "--tensorboard",
    "ray": "--launcher ray",
    "submitit": "--launcher slurm",
    "optuna": "tune",
    "timm": "--network timm:NAME",
    "pyyaml": "grid FILE.yaml",
    "safetensors": "--save-models",
    "huggingface-hub": "--dataset hf:OWNER/NAME",
    "torchtext": "real tweets, the first time",
}
_MODULES = {"scikit-learn": "sklearn", "pillow": "PIL"}  # imported by another name
_LATER = {"torchvision"}  # only where it is used, also beside a PyTorch of another build
_TESTS = ("pytest", "pytest-xdist", "ruff", "mypy", "pandas-stubs", "types-tabulate")  # ./run_all.sh test
_DISK = 5.0  # GB that data, records and caches of the paper's scale may take
_MEMORY = 4.0  # GB that one run at the paper's scale may take


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    name: str
    value: str
    state: str = "ok"  # or ``note``, for what only some uses need, or ``missing``: nothing works without
    remedy: str = ""  # what to do about it


def python() -> Iterator[Finding]:
    """The interpreter."""
    here = f"{'.'.join(map(str, sys.version_info[:3]))} in {sys.prefix}"
    least = ".".join(map(str, _LEAST))
    if sys.version_info < _LEAST:
        name_one = "name one: PFL_PYTHON=/path/to/python ./run_all.sh doctor"
        yield Finding("Python", here, "missing", f"install Python {least} or later, or {name_one}")
    else:
        yield Finding("Python", here)


def packages() -> Iterator[Finding]:
    """What cannot be done without; in a checkout at the versions of requirements.txt."""
    needed = requirements()
    absent = [name for name in needed if _version(name) is None]
    old = [name for name in needed if name not in absent and _old(name, needed[name])]
    if absent or old:
        told = [f"{', '.join(absent)} not installed"] if absent else []
        told += [f"{name} {_version(name)} is older than {needed[name]}" for name in old]
        yield Finding(
            "packages", ", ".join(told), "missing", _install([needed[name] for name in absent + old])
        )
    elif broken := next(((name, fault) for name in needed if (fault := _fault(name))), None):
        name, fault = broken  # the first, on which others may depend
        remedy = _install([needed[name]], "--force-reinstall")
        yield Finding("packages", f"{name} cannot be imported ({fault})", "missing", remedy)
    elif CHECKOUT:
        yield _as_tested(CHECKOUT, needed)
    else:
        yield Finding("packages", "installed")
    if CHECKOUT and (untested := [name for name in _TESTS if _version(name) is None]):
        yield Finding("tests", f"{', '.join(untested)} not installed", "note", "only for ./run_all.sh test")
    if lacking := [name for name in _OPTIONAL if _version(name) is None]:
        uses = ", ".join(f"{name} ({_OPTIONAL[name]})" for name in lacking)
        extras = requirements(optional=True)
        remedy = f"python -m pip install {shlex.join(extras[name] for name in lacking)}"
        yield Finding("optional", f"{uses} not installed", "note", remedy)


def _as_tested(checkout: Path, needed: Iterable[str]) -> Finding:
    text = (checkout / "requirements.txt").read_text(encoding="utf-8")
    tested = dict(re.findall(r"(?m)^([\w-]+)==([\w.]+)", text))
    if others := [f"{name} {_version(name)}" for name in needed if _version(name) != tested[name]]:
        remedy = "nothing, unless something fails: the versions of requirements.txt are those tested"
        return Finding("packages", f"installed; other versions: {', '.join(others)}", "note", remedy)
    return Finding("packages", "as in requirements.txt")


def _install(wanted: Iterable[str], *options: str) -> str:
    """The command that installs what is wanted where this program runs."""
    system = sys.prefix == sys.base_prefix and not os.environ.get("CONDA_PREFIX")
    if CHECKOUT and system and not os.environ.get("PFL_PYTHON"):
        return "run ./run_all.sh setup"
    return shlex.join([sys.executable, "-m", "pip", "install", *options, *wanted])


def _fault(name: str) -> str:
    """Why an installed package cannot be imported; empty: it can."""
    if name not in _LATER:
        try:
            importlib.import_module(_MODULES.get(name, name))
        except Exception as error:  # whatever packages that do not fit together raise
            return str(error) or type(error).__name__
    return ""


def _old(name: str, requirement: str) -> bool:
    """Whether the package is older than its requirement says, such as ``numpy>=1.26``."""
    here, least = (
        [int(number) for number in re.findall(r"\d+", text)]
        for text in (_version(name) or "", requirement.partition(">=")[2])
    )
    return here < least


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def pytorch() -> Iterator[Finding]:
    """PyTorch and the GPUs that it finds."""
    try:
        torch = importlib.import_module("torch")
    except Exception:  # `packages` says why
        return
    yield Finding("PyTorch", f"{torch.__version__}, threads: {torch.get_num_threads()}")
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(number)
            yield Finding("GPU", f"cuda:{number}, {about.name}, {about.total_memory / 1e9:.0f} GB")
    elif shutil.which("nvidia-smi"):
        remedy = "install a build of PyTorch for your driver (pytorch.org, Get Started)"
        text = f"nvidia-smi is here, but PyTorch {torch.__version__} finds no GPU"
        yield Finding("GPU", text, "note", remedy)
    else:
        remedy = "nothing for small data; a paper-scale run takes half an hour to hours on a CPU"
        yield Finding("GPU", "none", "note", remedy)


def cores() -> Iterator[Finding]:
    """Cores this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = os.environ.get("OMP_NUM_THREADS")
    yield Finding("cores", f"{count}{f', OMP_NUM_THREADS={share}' if share else ''}")


def memory() -> Iterator[Finding]:
    """Memory that is free now."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        total, free = (float(lines[name].split()[0]) * 1024 / 1e9 for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):  # not Linux
        yield Finding("memory", "not known on this system")
        return
    text = f"{free:.1f} of {total:.1f} GB available"
    if free < _MEMORY:
        yield Finding("memory", text, "note", f"close other programs: large runs take up to {_MEMORY:g} GB")
    else:
        yield Finding("memory", text)


def disk() -> Iterator[Finding]:
    """Disk where records and caches go."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for name, folder in (("records", Path("results").absolute()), ("cache", home / "pfl-benchmark")):
        path = next(path for path in (folder, *folder.parents) if _is_there(path))
        free = shutil.disk_usage(path).free / 1e9
        text = f"{free:.1f} GB free for {folder}"
        if not os.access(path, os.W_OK):
            remedy = "choose another --results-dir" if name == "records" else "set XDG_CACHE_HOME"
            yield Finding(name, f"{path} cannot be written", "note", remedy)
        elif free < _DISK:
            remedy = f"free some: paper-scale data and records take up to {_DISK:g} GB"
            yield Finding(name, text, "note", remedy)
        else:
            yield Finding(name, text)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # in a folder that this user may not search
        return False


def data() -> Iterator[Finding]:
    """The datasets that are read from files; those found are read, so that a damaged one is named."""
    try:
        datasets = importlib.import_module("pfl_benchmark.datasets.api")
    except Exception as error:  # of packages, mostly, which `packages` names
        yield Finding("data", f"not looked for ({error})", "note", "first mend what is missing")
        return
    given = os.environ.get("PFL_DATA_DIR")
    yield Finding("data folder", given or "PFL_DATA_DIR is not set: a cache folder is used")
    for name, info in datasets.DATASETS.items():
        if not info.needs_files:
            yield Finding(f"data {name}", "needs no files")
            continue
        try:
            found = datasets.load(name, download=False)
        except Exception as error:  # mostly a `UserError`; else of a package, or of the system
            if "was not found" not in str(error):
                yield Finding(f"data {name}", "cannot be read", "note", str(error))
            else:
                remedy = f"python -m benchmark data --dataset {name} says how to get it"
                if info.download is not None:
                    remedy = f"the first run downloads it ({info.download.what})"
                yield Finding(f"data {name}", "not here", "note", remedy)
        else:
            yield Finding(f"data {name}", found.source)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (python, packages, pytorch, cores, memory, disk, data)


def findings() -> Iterator[Finding]:
    """All of them, in order."""
    for check in CHECKS:
        yield from check()


def report() -> int:
    """Print the findings as they come.

    Returns:
        The exit code: 0, or 2 if something is missing that nothing works without.
    """
    missing = 0
    for found in findings():
        mark = {"ok": " ", "note": "-", "missing": "!"}[found.state]
        print(f"{mark} {found.name:<20}{found.value}", flush=True)
        if found.remedy:
            print(f"{'':<22}{with_program(found.remedy)}", flush=True)
        missing += found.state == "missing"
    if missing:
        print(f"\nerror: {missing} of the above, marked !, must be mended first", file=sys.stderr)
    else:
        example = with_program("python -m benchmark --algo fedper --dataset digits --rounds 10")
        print(f"\nready; a run of seconds: {example}")
    return 2 if missing else 0
