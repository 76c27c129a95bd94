"""PFLlib's servers and clients on the small federation, by stubs of what reads files."""

import copy
import importlib
import math
import random
import sys
import types
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from checkouts import PFLLIB
from federation import (
    BATCH, CLASSES, RATE, ROUNDS, SIZES, adapted, base, copies, correct, kept, models, server,
)  # fmt: skip

STUBS = ("h5py", "calmsize", "cvxpy", "ujson", "utils.dlg", "utils.data_utils")

# Their options at what their main.py has, where a method does not say otherwise.
OPTIONS = {
    "learning_rate_decay_gamma": 1.0, "learning_rate_decay": False, "few_shot": 0, "global_rounds": ROUNDS,
    "random_join_ratio": False, "time_select": False, "goal": "", "time_threthold": 1e9,
    "save_folder_name": "", "top_cnt": 100, "auto_break": False, "eval_gap": 1, "client_drop_rate": 0.0,
    "train_slow_rate": 0.0, "send_slow_rate": 0.0, "dlg_eval": False, "dlg_gap": 1,
    "batch_num_per_client": 1, "num_new_clients": 0, "fine_tuning_epoch_new": 0, "device": "cpu",
    "algorithm": "", "dataset": "", "plocal_epochs": 2,
}  # fmt: skip


class Over(Exception):
    """Their loop has gone as far as it is compared."""


class Batches:
    """Stands for their loader: batches in the order of our next epoch.

    Passes without gradients, and those before the first round, are in the order in which samples are stored.
    """

    def __init__(self, x, y, size, orders):
        self.x, self.y, self.size, self.orders = x, y, size, orders

    def __len__(self):
        return len(self.y) // self.size

    def __iter__(self):
        order = torch.arange(len(self.y))
        if torch.is_grad_enabled() and self.orders:
            order = torch.from_numpy(self.orders.pop(0))
        for part in order.split(self.size):
            yield self.x[part], self.y[part]


@dataclass(frozen=True)
class Pair:
    """A method here, and what is compared with it there.

    hyper: hyper-parameters here.
    options: theirs.
    ours, theirs: what is compared, by what it is: a list of tensors of the method, or of their server.
    prepare: changes their server before it trains.
    order: which epochs theirs train on and in which order, of those of ours.
    left_out: what is not compared, and why.
    deviates: where their code differs from the publication.
    within: the largest gap that counts as equal.
    """

    algo: str
    server: str
    hyper: dict = field(default_factory=dict)
    options: dict = field(default_factory=dict)
    ours: dict = field(default_factory=lambda: {"server": server, "clients": models, "correct": correct})
    theirs: dict = field(default_factory=dict)
    prepare: object = None
    order: object = None
    norm: bool = False
    participations: tuple = (1.0, 0.6)
    changes: dict = field(default_factory=dict)
    streams: object = None
    left_out: tuple = ()
    deviates: tuple = ()
    within: float = 1e-13
    source: str = "pfllib"
    variant: str = ""

    @property
    def label(self):
        return f"{self.source}{'-' if self.variant else ''}{self.variant}"


@contextmanager
def imported(path):
    """Their modules can be imported; what reads files is stubbed. What was imported goes again."""
    before = dict(sys.modules)
    for name in [n for n in sys.modules if n.split(".")[0] in ("utils", "flcore")]:
        del sys.modules[name]
    sys.path.insert(0, str(path / PFLLIB.folder))
    for name in STUBS:
        if name not in sys.modules:
            sys.modules[name] = types.ModuleType(name)
    sys.modules["utils.dlg"].DLG = None
    sys.modules["utils.data_utils"].read_client_data = None
    try:
        yield
    finally:
        sys.path.remove(str(path / PFLLIB.folder))
        for name in [n for n in sys.modules if n not in before or n.split(".")[0] in ("utils", "flcore")]:
            if name.split(".")[0] in ("utils", "flcore", *STUBS):
                del sys.modules[name]
        sys.modules.update({n: m for n, m in before.items() if n not in sys.modules})


def split_model(fed):
    """Their model of base and head with our initial values."""
    module = importlib.import_module("flcore.trainmodel.models")
    model = module.BaseHeadSplit(base(fed.norm), torch.nn.Linear(12, CLASSES)).double()
    for parameter, value in zip(model.parameters(), fed.initial(), strict=True):
        parameter.data = value.detach().clone()
    return model


def play(pair, fed, path):
    """Their server's rounds; what is seen after each, once it has sent what it sends."""
    with imported(path):
        return _play(pair, fed)


def _play(pair, fed):
    module, _, name = pair.server.partition(":")
    clients = importlib.import_module("flcore.clients.clientbase")
    servers = importlib.import_module("flcore.servers.serverbase")

    def read(dataset, client, is_train=True, few_shot=0):
        x, y = fed.samples(client, "train" if is_train else "test")
        return list(zip(x, y, strict=True))

    for loaded in [m for n, m in sys.modules.items() if n.startswith("flcore.")]:
        if hasattr(loaded, "read_client_data"):
            loaded.read_client_data = read
    now, found = {"round": 0}, []
    orders = {
        place: [one for _, _, one in (pair.order(epochs) if pair.order else epochs)]
        for place, epochs in fed.orders.items()
    }

    def load_train(self, batch_size=None):
        x, y = fed.samples(self.id)
        return Batches(x, y, batch_size or self.batch_size, orders.get((now["round"], self.id), []))

    def load_test(self, batch_size=None):
        x, y = fed.samples(self.id, "test")
        return [(x, y)]

    clients.Client.load_train_data, clients.Client.load_test_data = load_train, load_test
    theirs = getattr(importlib.import_module(module), name)
    for loaded in [m for n, m in sys.modules.items() if n.startswith("flcore.")]:
        if hasattr(loaded, "read_client_data"):
            loaded.read_client_data = read
    assert issubclass(theirs, servers.Server)
    arguments = types.SimpleNamespace(**{
        **OPTIONS, "model": split_model(fed), "num_classes": CLASSES, "batch_size": BATCH,
        "local_learning_rate": RATE, "local_epochs": fed.config.local_epochs, "num_clients": len(SIZES),
        "join_ratio": fed.config.participation, **pair.options,
    })  # fmt: skip

    class Watched(theirs):
        def select_clients(self):
            now["round"] += 1
            self.current_num_join_clients = self.num_join_clients
            return [self.clients[client] for client in fed.cohorts[now["round"] - 1]]

        def evaluate(self, acc=None, loss=None):
            if now["round"] > 1:
                found.append({what: copies(look(self)) for what, look in pair.theirs.items()})
            if len(found) == ROUNDS:
                raise Over

        def evaluate_personalized(self):
            if theirs.__name__ != "Ditto":
                self.evaluate()

        evaluate_one_step = evaluate

    state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    made = Watched(arguments, 0)
    if pair.prepare:
        pair.prepare(made, fed)
    try:
        made.train()
    except Over:
        pass
    finally:
        random.setstate(state[0])
        np.random.set_state(state[1])
        torch.set_rng_state(state[2])
    return found


# What is looked at on their side


def global_model(made):
    return made.global_model.parameters()


def of_clients(name="model"):
    """A model of every client."""
    return lambda made: [p for client in made.clients for p in getattr(client, name).parameters()]


def right(name="test_metrics"):
    """Correct predictions of every client."""
    return lambda made: [torch.tensor([getattr(client, name)()[0] for client in made.clients])]


ALL = {"server": global_model, "clients": of_clients(), "correct": right()}
PERSONAL = {"clients": models, "correct": correct}

UNIFORM = {"aggregation": "uniform"}
PAIRS = [
    Pair("fedavg", "flcore.servers.serveravg:FedAvg", theirs=ALL),
    Pair("fedprox", "flcore.servers.serverprox:FedProx", {"mu": 0.3}, {"mu": 0.3}, theirs=ALL),
    Pair("fedper", "flcore.servers.serverper:FedPer", theirs=ALL),
    Pair(
        "fedrep", "flcore.servers.serverrep:FedRep", {"head_epochs": 2, "body_epochs": 2}, theirs=ALL,
    ),
    Pair("lg-fedavg", "flcore.servers.serverlg:LG_FedAvg", {"lg_shared": 1}, theirs=ALL),
    Pair(
        "fedbn", "flcore.servers.serverbn:FedBN", norm=True, theirs={"clients": of_clients()},
        ours={"clients": models},
        left_out=("running statistics and evaluation: theirs are those of the last training as well",),
    ),
    Pair(
        "ditto", "flcore.servers.serverditto:Ditto", {"lam": 0.7}, {"mu": 0.7},
        theirs={"server": global_model, "clients": of_clients("model_per"),
                "correct": right("test_metrics_personalized")},
    ),
    Pair("scaffold", "flcore.servers.serverscaffold:SCAFFOLD", {}, {"server_learning_rate": 1.0}, theirs=ALL),
    Pair("moon", "flcore.servers.servermoon:MOON", {"mu": 2.0, "temperature": 0.5}, {"mu": 2.0, "tau": 0.5},
         theirs=ALL),
]  # fmt: skip
