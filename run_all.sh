#!/usr/bin/env bash
# Sets up everything this project needs, then runs a profile of the benchmark or its tests.
set -euo pipefail
case "${PFL_PYTHON:-}" in [!/]*/*) PFL_PYTHON=$PWD/$PFL_PYTHON ;; esac # named from the caller's folder
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() {
    cat <<'TEXT'
usage: ./run_all.sh [--profile quick|lite|paper] [options of `python -m benchmark tables`]
       ./run_all.sh test [--fast | --all] [options of pytest]
       ./run_all.sh setup | doctor | docs

  (no --profile)   paper if a CUDA GPU is present, otherwise quick
  --profile quick  all tables and figures on small data that needs no download; minutes on a laptop
  --profile lite   the same on real images at a reduced scale, three seeds; hours on two cores
  --profile paper  all tables and figures at the paper's scale; finished runs are not repeated
  --only STUDY ... only these studies (`python -m benchmark list studies` names them)
  --seeds N        number of seeds
  --results-dir D  folder for records, tables and figures (default: results/PROFILE); a relative one begins at this
                   checkout. results/paper holds our records and refuses runs on another copy of their data: use a
                   new folder for those, such as results/mine
  --jobs N|auto    number of runs at a time, in processes that share the cores and the GPU
  --launcher slurm --slurm partition=P time=8:00:00   run as a job array of a Slurm cluster
  --launcher ray   run on a Ray cluster (--address HOST:PORT; without it, a cluster of this machine alone)
  --wandb offline  also log to Weights & Biases (online: with a key)
  --dry-run        print what would run and how long it would take
  test             run linter, type checker and tests, with one process per core
  test --fast      without slow tests and most cases of the others
  test --all       with heavy tests (tests/heavy.txt) and every method in every test over all methods
  setup            create .venv with the packages of requirements.txt, nothing else; other calls do so, too
  doctor           print what is here (Python, PyTorch, GPU, cores, memory, disk, data), what is missing, and what
                   to do about it; installs nothing
  docs             build the documentation into site/ and say where it begins; installs MkDocs beside the rest

The first call creates a virtual environment in .venv. With PFL_PYTHON=/path/to/python, that interpreter is
used as it is and nothing is installed.
TEXT
}

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $*"; exit 2; }

recent() { # is $1 a Python of at least 3.11?
    command -v "$1" >/dev/null 2>&1 && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

setup() { # sets $python
    if [ -n "${PFL_PYTHON:-}" ]; then
        recent "$PFL_PYTHON" || fail "PFL_PYTHON=$PFL_PYTHON is not a Python of version 3.11 or later"
        python=$PFL_PYTHON
        return
    fi
    python=.venv/bin/python
    local wanted stamp=.venv/requirements.sha256 found=''
    wanted=$(cksum <requirements.txt)
    if [ -x "$python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    for candidate in python3.12 python3.11 python3.13 python3.14 python3 python; do
        if recent "$candidate"; then found=$candidate; break; fi
    done
    [ -n "$found" ] || fail "no Python of version 3.11 or later found; install one, or name it with PFL_PYTHON"
    say "setting up .venv with $("$found" --version), once. The packages take longest: minutes, most of them for PyTorch"
    say "(with its CUDA libraries about 3 GB on Linux; about 200 MB where pip is set up for a build without CUDA)"
    "$found" -m venv .venv || fail "cannot create .venv; install Python's venv module (Debian: python3-venv)"
    local quiet=--quiet
    if [ -t 2 ]; then quiet=--no-input; fi # somebody watches: pip's own progress is worth seeing
    "$python" -m pip install "$quiet" --disable-pip-version-check -r requirements.txt ||
        fail "pip could not install requirements.txt; see its message above, then call this again"
    printf '%s' "$wanted" >"$stamp"
}

case "${1:-}" in
-h | --help) usage; exit 0 ;;
setup)
    setup
    exec "$python" -m pfl_benchmark.doctor
    ;;
docs)
    setup
    "$python" -c 'import mkdocs, material, mkdocstrings' 2>/dev/null || {
        [ -z "${PFL_PYTHON:-}" ] || fail "$python lacks MkDocs; install docs/requirements.txt into it"
        say "installing MkDocs (docs/requirements.txt), once"
        "$python" -m pip install --quiet --disable-pip-version-check -r docs/requirements.txt ||
            fail "pip could not install docs/requirements.txt; see its message above, then call this again"
    }
    NO_MKDOCS_2_WARNING=1 "$python" -m mkdocs build --quiet --strict --config-file docs/mkdocs.yml
    say "site/index.html"
    exit 0
    ;;
doctor)
    python=${PFL_PYTHON:-.venv/bin/python}
    if [ -z "${PFL_PYTHON:-}" ] && [ ! -x "$python" ]; then
        for python in python3.12 python3.11 python3.13 python3.14 python3 python ''; do
            if [ -z "$python" ] || recent "$python"; then break; fi
        done
        [ -n "$python" ] || fail "no Python of version 3.11 or later found; install one, or name it with PFL_PYTHON"
        say "no .venv yet: ./run_all.sh setup creates it and installs the packages; this is $python"
    fi
    command -v "$python" >/dev/null 2>&1 || fail "PFL_PYTHON=$PFL_PYTHON cannot be started; give a Python"
    exec "$python" -m pfl_benchmark.doctor
    ;;
test)
    shift
    setup
    "$python" -m ruff check .
    "$python" -m ruff format --check .
    "$python" -m mypy
    # Compiled modules are kept, whatever the environment says: the tests start many processes.
    unset PYTHONDONTWRITEBYTECODE
    # A process for each core, each with one thread: tests are too small to share among threads.
    export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
    exec "$python" -m pytest -n auto --dist loadfile --no-loadscope-reorder "$@"
    ;;
esac

setup
profile_given=no
for argument in "$@"; do
    case "$argument" in --profile | --profile=*) profile_given=yes ;; esac
done
if [ "$profile_given" = no ]; then
    if "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
        say "profile: paper, because a CUDA GPU is present (--profile quick for the small one)"
        set -- --profile paper "$@"
    else
        say "profile: quick, because there is no CUDA GPU here (--profile paper for the paper's scale)"
        set -- --profile quick "$@"
    fi
fi
exec "$python" -m benchmark tables "$@"
