"""Official code of single methods on the small federation, by stubs of what reads files."""

import importlib
import sys
import types
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from tempfile import TemporaryDirectory
from unittest.mock import MagicMock, patch

import torch
from federation import BATCH, CLASSES, RATE, ROUNDS, SIZES, copies, correct, kept, models, server, whole
from pfllib import PERSONAL, UNIFORM, Batches, Over, Pair
from torch import nn

from pfl_benchmark.algorithms.feddecomp import LOW
from pfl_benchmark.algorithms.fedselect import OWN
from pfl_benchmark.method import strip_prefix

CLIENTS = range(len(SIZES))
TESTS = 17  # test samples of a client


class Loader:
    """Stands for the loader of a client's training samples: batches in the order of our next epoch."""

    def __init__(self, fed, client):
        self.now = 0
        self._samples = fed.samples(client)
        self._orders = {
            number: [order for _, _, order in epochs]
            for (number, owner), epochs in fed.orders.items()
            if owner == client
        }

    def __len__(self):
        return len(self._samples[1]) // BATCH

    def __iter__(self):
        return iter(Batches(*self._samples, BATCH, self._orders.get(self.now, [])))


@contextmanager
def imported(path, own, stubs):
    """Their modules can be imported, by the first parts `own` of their names; `stubs` stand for others."""

    def theirs():
        return [name for name in sys.modules if name.split(".")[0] in own or name in stubs]

    before = {name: sys.modules.pop(name) for name in theirs()}
    sys.path.insert(0, str(path))
    sys.modules.update(stubs)
    try:
        yield
    finally:
        sys.path.remove(str(path))
        for name in theirs():
            del sys.modules[name]
        sys.modules.update(before)


def module(name, **values):
    """A module that holds `values`."""
    found = types.ModuleType(name)
    found.__spec__ = ModuleSpec(name, None)  # which torch asks for
    found.__dict__.update(values)
    return found


def with_values(model, values, parts=nn.Module.parameters):
    """`model`, after `parts` of it have got other values."""
    for tensor, value in zip(parts(model), values, strict=True):
        tensor.data = value.detach().clone()
    return model


def initial_model(fed):
    """The small network at θ_0."""
    return with_values(whole().double(), fed.initial())


# FedDecomp


def decomposed(fed):
    """The small network of their layers at our initial values, parts of low rank among them."""
    layers = importlib.import_module("loralib.layers")
    rank = fed.hyper.linear_rank

    class Decomposed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = layers.Conv2d(1, 4, 3, r=fed.hyper.conv_rank, padding=1)
            self.fc1 = layers.Linear(64, 12, r=rank)
            self.fc = layers.Linear(12, CLASSES, r=rank)

        def forward(self, x, mode="all"):
            x = nn.functional.max_pool2d(self.conv(x, mode).relu(), 2).flatten(1)
            return self.fc(self.fc1(x, mode).relu(), mode)

    parts = fed.method(fed.task, fed.hyper).clients.initial
    model = with_values(Decomposed().double(), fed.initial(), shared)
    return with_values(model, parts.values(), low)


def shared(model):
    return [tensor for name, tensor in model.named_parameters() if "lora_" not in name]


def low(model):
    """Both factors of every layer, in our order."""
    layers = (model.conv, model.fc1, model.fc)
    return [tensor for layer in layers for tensor in (layer.lora_B, layer.lora_A)]


def feddecomp(pair, fed, path):
    """Rounds of their server; what is seen after each, once everybody has received its mean."""
    stubs = {
        "matplotlib": MagicMock(), "matplotlib.pyplot": MagicMock(),
        "tqdm": module("tqdm", tqdm=lambda steps: steps),
        "utils.get_dataset": module("utils.get_dataset", get_dataset=lambda args: ([], [], *[[()] * 5] * 2)),
    }  # fmt: skip
    with imported(path, ("src", "utils", "loralib"), stubs):
        clients, servers = (importlib.import_module(f"src.{name}") for name in ("client", "server"))

        def loaders(self, *of):
            return Loader(fed, self.index), None, [fed.samples(self.index, "test")], None

        clients.Client.train_val_test = loaders
        arguments = types.SimpleNamespace(
            optimizer="sgd", lr=RATE, momentum=0.0, local_ep=fed.config.local_epochs, policy=3,
            local_p_ep=fed.hyper.low_epochs, num_users=len(SIZES), frac=fed.config.participation,
            epochs=ROUNDS + 1, local_bs=BATCH,
        )  # fmt: skip
        made = servers.Server("cpu", decomposed(fed), arguments, MagicMock())
        found = []

        def choose(*of, **options):
            now = made.clients[0].trainloader.now
            if now > 0:
                found.append({what: copies(look(made)) for what, look in pair.theirs.items()})
            if now == ROUNDS:
                raise Over
            for client in made.clients:
                client.trainloader.now = now + 1
            return fed.cohorts[now]

        servers.np = types.SimpleNamespace(random=types.SimpleNamespace(choice=choose))
        try:
            made.train()
        except Over:
            return found


DECOMPOSED = {
    "server": lambda made: shared(made.clients[0].local_model),
    "parts of low rank": lambda made: [t for client in made.clients for t in low(client.local_model)],
    "correct": lambda made: [torch.tensor([round(client.testingAcc * TESTS) for client in made.clients])],
}


# FedSelect


def fedselect(pair, fed, path):
    """Their rounds; what every client begins the next one with."""
    stubs = {
        "tqdm": module("tqdm", tqdm=MagicMock()),
        "torchvision": module("torchvision", datasets=None, transforms=MagicMock()),
        "torchvision.models": module("torchvision.models", resnet18=None),
    }
    own = ("fedselect", "lottery_ticket", "broadcast", "pflopt", "utils")
    with imported(path, own, stubs), patch.object(torch.cuda, "is_available", return_value=False):
        theirs = importlib.import_module("fedselect")
        model, found = initial_model(fed), []
        loaders, train = [Loader(fed, client) for client in CLIENTS], theirs.train_personalized

        def watched(model, loader, mask, *rest):
            client = loaders.index(loader)
            if client == 0:
                found.append({"clients": [], "masks": [], "correct": []})
            acc = theirs.evaluate(model, [fed.samples(client, "test")], None)
            found[-1]["clients"] += copies(model.parameters())
            found[-1]["masks"] += copies(mask.values())
            found[-1]["correct"].append(round(acc * TESTS))
            loader.now = len(found)
            return train(model, loader, mask, *rest)

        theirs.train_personalized = watched
        theirs.prepare_dataloaders = lambda train, client, *rest: (loaders[client], None)
        theirs.cross_client_eval = lambda *of, **options: torch.zeros(len(SIZES), len(SIZES))
        arguments = types.SimpleNamespace(
            com_rounds=pair.start + ROUNDS + 1, lth_epoch_iters=fed.hyper.every, clipgradnorm=False,
            prune_percent=100 * fed.hyper.rate, prune_target=100 * fed.hyper.limit, lr=RATE,
            la_epochs=fed.config.local_epochs,
        )  # fmt: skip
        theirs.fedselect_algorithm(model, arguments, None, None, CLIENTS, CLIENTS, None, [*CLIENTS])
    return [{**seen, "correct": copies([seen["correct"]])} for seen in found[pair.start + 1 :]]


# FedDWA


def feddwa(pair, fed, path):
    """Rounds of their server; what is seen after each, once it has sent what it has mixed."""
    stubs = {
        "h5py": MagicMock(), "torchvision": MagicMock(), "utils.data_utils": module("utils.data_utils"),
        "utils.dataset": module("utils.dataset", CustomDataset=list),
    }  # fmt: skip
    with imported(path, ("servers", "clients", "utils"), stubs):
        theirs, found = importlib.import_module("servers.serverFedDWA"), []

        class Watched(theirs.FedDWA):
            def dataset_division(self):
                self.all_train_set, self.all_test_set = (
                    [[*zip(*fed.samples(client, part), strict=True)] for client in CLIENTS]
                    for part in ("train", "test")
                )

            def select_client(self, method=0):
                self.current_global_round += 1
                for client in self.clientsObj:
                    client.train_loader = client.loader
                    client.loader.now = self.current_global_round
                return fed.cohorts[self.current_global_round - 1]

            def evaluate_acc(self, selected_all=False):
                if self.current_global_round > 1:
                    found.append({what: copies(look(self)) for what, look in pair.theirs.items()})
                if len(found) == ROUNDS:
                    raise Over
                return [], 0.0

        arguments = MagicMock(
            device="cpu", E=fed.config.local_epochs, Tg=ROUNDS + 1, B=BATCH, lr=RATE, next_round=1,
            client_num=len(SIZES), client_frac=fed.config.participation, feddwa_topk=fed.hyper.neighbours,
        )  # fmt: skip
        made = Watched(arguments, initial_model(fed), 1, MagicMock())
        for client in made.clientsObj:
            client.loader = Loader(fed, client.id)
        try:
            made.train()
        except Over:
            return found


MIXED = {
    "clients": lambda made: [t for client in made.clientsObj for t in client.model.parameters()],
    "correct": lambda made: [
        torch.tensor([round(client.test_accuracy() * TESTS) for client in made.clientsObj])
    ],
}

# IFCA


def ifca(pair, fed, path):
    """Rounds of their models, all clients in each; what is seen once clients have chosen anew."""
    stubs = {name: module(name) for name in ("torchvision", "torchvision.datasets")}
    with imported(path / "mnist", ("train_cluster_mnist", "util"), stubs), TemporaryDirectory() as folder:
        theirs, found = importlib.import_module("train_cluster_mnist"), []

        class Watched(theirs.TrainMNISTCluster):
            def setup_datasets(self):
                self.dataset = {part: {"cluster_assign": [0] * len(SIZES)} for part in ("train", "test")}

            def setup_models(self):
                self.models = [with_values(whole().double(), own) for own in clusters(fed)]
                self.criterion = nn.CrossEntropyLoss()

            def load_data(self, client, train=True):
                return fed.samples(client, "train" if train else "test")

            def test(self, train=False):
                result = super().test(train)
                if train and self.epoch >= 0:
                    self.own = [self.models[chosen] for chosen in result["cluster_assign"]]
                    found.append({what: copies(look(self)) for what, look in pair.theirs.items()})
                return result

        made = Watched({
            "m": len(SIZES), "m_test": len(SIZES), "p": 1, "tau": fed.config.local_epochs,
            "num_epochs": ROUNDS, "lr": RATE, "project_dir": folder,
        })  # fmt: skip
        made.config["p"] = fed.hyper.clusters  # which must divide the clients of data that they split
        made.setup()
        made.run()
    return found


def clusters(fed):
    """The models of our server at first."""
    common = fed.method(fed.task, fed.hyper).server
    return [[*strip_prefix(str(number), common).values()] for number in range(fed.hyper.clusters)]


def right(made):
    pairs = [(model, *made.load_data(client, train=False)) for client, model in enumerate(made.own)]
    return [torch.tensor([made.n_correct(model(x), y) for model, x, y in pairs])]


CLUSTERED = {
    "server": lambda made: [tensor for model in made.models for tensor in model.parameters()],
    "clients": lambda made: [tensor for model in made.own for tensor in model.parameters()],
    "correct": right,
}

PLAYERS = {"feddecomp": feddecomp, "fedselect": fedselect, "feddwa": feddwa, "ifca": ifca}

DECOMP = {"algo": "feddecomp", "server": "src.server:Server", "source": "feddecomp",
          "hyper": {"conv_rank": 0.6, "linear_rank": 4, "low_epochs": 2},
          "changes": {**UNIFORM, "local_epochs": 3}, "theirs": DECOMPOSED,
          "ours": {"server": server, "parts of low rank": kept(LOW), "correct": correct}}  # fmt: skip

PAIRS = [
    Pair(**DECOMP, participations=(1.0,),
         left_out=("participation 0.6: there all clients' models are averaged, here the participants'",)),
    Pair(**DECOMP, variant="absent", participations=(0.6,), within=None,
         deviates=("the models of all clients are averaged, of those that have not trained, too",)),
    Pair(
        "fedselect", "fedselect:fedselect_algorithm", {"rate": 0.25, "limit": 0.3, "every": 1},
        source="fedselect", changes=UNIFORM, participations=(1.0,), theirs={}, start=2,
        ours={"clients": models, "masks": kept(OWN), "correct": correct},
        left_out=("participation 0.6: the participants are the same in all rounds there",
                  "evaluation: there before the mean is received, here afterwards"),
    ),
    Pair("feddwa", "servers.serverFedDWA:FedDWA", {"neighbours": 2}, source="feddwa", ours=PERSONAL,
         theirs=MIXED, within=1e-6),  # their weights of models are float32
    Pair(
        "ifca", "mnist.train_cluster_mnist:TrainMNISTCluster", {"clusters": 3}, source="ifca",
        changes={**UNIFORM, "batch_size": max(SIZES)}, participations=(1.0,), theirs=CLUSTERED,
        ours={"server": lambda algorithm: [*algorithm.server.values()], "clients": models,
              "correct": correct},
        left_out=("batches: steps are on all of a client's samples there",
                  "participation 0.6: everybody takes part there",
                  "evaluation: there with the model of least loss on the test samples"),
    ),
]  # fmt: skip
