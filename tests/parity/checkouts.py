"""Checkouts of public code that a person names, and what the comparisons found in them."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from pfl_benchmark.records.files import write_text

TABLE = Path(__file__).resolve().parents[2] / "docs" / "parity.json"
WRITE = "PFL_PARITY_WRITE"  # set: what is measured goes into the table


@dataclass(frozen=True)
class Checkout:
    """A public repository.

    folder: what its modules are imported from.
    expected: a file that a checkout of the layout known here has.
    """

    key: str
    repository: str
    folder: str
    expected: str

    @property
    def variable(self):
        return f"PFL_PARITY_{self.key.upper()}"

    def find(self):
        """Where it is; skips the test with a reason that names what is missing."""
        given = os.environ.get(self.variable)
        if not given:
            pytest.skip(f"{self.variable} is not set; expected the path of a checkout of {self.repository}")
        path = Path(given).expanduser().resolve()
        if not (path / self.expected).is_file():
            pytest.skip(
                f"{self.variable}={given} has no file {self.expected}; expected a checkout of "
                f"{self.repository}"
            )
        return path

    def commit(self):
        """The commit that is checked out; empty where git cannot tell, or where files were changed."""
        path = self.find()

        def git(*words):
            done = subprocess.run(["git", "-C", path, *words], capture_output=True, text=True, check=False)
            return done.stdout.strip() if done.returncode == 0 else None

        top = git("rev-parse", "--show-toplevel")
        own = top is not None and Path(top).resolve() == path
        changed = git("diff", "--name-only", "HEAD", "--", f"{self.folder or '.'}/**/*.py", "*.py")
        return git("rev-parse", "HEAD") if own and changed == "" else ""


PFLLIB = Checkout("pfllib", "TsingZ0/PFLlib", "system", "system/flcore/servers/serverbase.py")
FLBENCH = Checkout("flbench", "KarhouTam/FL-bench", ".", "src/server/fedavg.py")
PFEDFDA = Checkout("pfedfda", "cj-mclaughlin/pFedFDA", ".", "clients/client_fedfda.py")
FEDAH = Checkout("fedah", "heyuepeng/FedAH", "system", "system/flcore/servers/serverah.py")
FEDDECOMP = Checkout("feddecomp", "XinghaoWu/FedDecomp", ".", "loralib/layers.py")
FEDSELECT = Checkout("fedselect", "lapisrocks/fedselect", ".", "lottery_ticket.py")
FEDDWA = Checkout("feddwa", "Sherrylife/FedDWA", ".", "servers/serverFedDWA.py")
IFCA = Checkout("ifca", "jichan3751/ifca", "mnist", "mnist/train_cluster_mnist.py")
CHECKOUTS = {
    checkout.key: checkout
    for checkout in (PFLLIB, FLBENCH, PFEDFDA, FEDAH, FEDDECOMP, FEDSELECT, FEDDWA, IFCA)
}


def enter(pair, participation, gaps):
    """Enter the measured gaps of a comparison into the table, if that is asked for.

    Entries that were measured at another commit of the checkout leave the table.
    """
    if not os.environ.get(WRITE):
        return
    checkout = CHECKOUTS[pair.source]
    commit = checkout.commit()
    if not commit:
        pytest.fail(
            f"{checkout.variable} is no unchanged git checkout, so the table could not name its commit; "
            f"give one, or unset {WRITE}"
        )
    code = pair.server.partition(":")[0].replace(".", "/") + ".py"
    if not (checkout.find() / code).is_file():
        code = f"{checkout.folder}/{code}"
    with FileLock(TABLE.with_name(".lock")):  # tests run in several processes
        table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
        _enter(table, pair, code, {"repository": checkout.repository, "commit": commit}, participation, gaps)
        write_text(TABLE, json.dumps(table, indent=1, ensure_ascii=False) + "\n")


def _enter(table, pair, code, checkout, participation, gaps):
    methods, checkouts = table.setdefault("methods", {}), table.setdefault("checkouts", {})
    if checkouts.get(pair.source, checkout) != checkout:
        for name, own in [*methods.items()]:
            methods[name] = {label: entry for label, entry in own.items() if entry["source"] != pair.source}
    checkouts[pair.source] = checkout
    entry = {
        "source": pair.source,
        "equal": pair.within is not None,
        "code": code,
        "settings": dict(pair.hyper),
        "compared": [*gaps],
        "left_out": [*pair.left_out],
        "deviates": [*pair.deviates],
        "gaps": {},
    }
    own = methods.setdefault(pair.algo, {})
    old = own.get(pair.label, {})
    kept = old.get("gaps", {}) if {**old, "gaps": {}} == entry else {}
    own[pair.label] = {**entry, "gaps": {**kept, f"{participation:g}": gaps}}
    table["methods"] = dict(sorted(methods.items()))
