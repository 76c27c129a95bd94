"""FL-bench's servers and clients on the small federation, by stubs of what configures and reads files."""

import importlib
import json
import pickle
import random
import sys
import tempfile
import types
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import torch
from federation import (
    BATCH,
    CLASSES,
    RATE,
    ROUNDS,
    SIZES,
    adapted,
    base,
    copies,
    correct,
    kept,
    models,
    server,
)
from pfllib import Batches, Pair

from pfl_benchmark.engine.streams import Streams

ABSENT = (
    "hydra", "hydra.core", "hydra.core.hydra_config", "omegaconf", "ray", "ray.actor", "rich", "rich.console",
    "rich.pretty", "rich.progress", "rich.logging", "rich.text", "torchvision", "torchvision.models",
    "torchvision.transforms", "pynvml", "faiss", "data", "data.utils", "data.utils.datasets",
)  # fmt: skip
DATA = "parity"


class Config(dict):
    """Stands for their configuration: a dictionary whose entries are attributes, too."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value

    def __delattr__(self, name):
        del self[name]

    @classmethod
    def of(cls, values):
        return cls({k: cls.of(v) if isinstance(v, dict) else v for k, v in values.items()})


class Samples(torch.utils.data.Dataset):
    """All clients' samples, one after the other, training before test."""

    classes = range(CLASSES)

    def __init__(self, fed):
        self.indices, parts, start = [], [], 0
        for client in range(len(SIZES)):
            own = {"val": []}
            for part in ("train", "test"):
                x, y = fed.samples(client, part)
                own[part] = [*range(start, start + len(y))]
                start += len(y)
                parts.append((x, y))
            self.indices.append(own)
        self.x, self.y = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        self.targets = self.y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]

    def train(self):
        pass

    def eval(self):
        pass


class Index:
    """Stands for faiss: squared distances to the nearest of what was added."""

    def __init__(self, width):
        self.rows = None

    def add(self, rows):
        self.rows = rows

    def search(self, points, count):
        squares = ((points[:, None] - self.rows[None]) ** 2).sum(2)
        places = np.argsort(squares, axis=1, kind="stable")[:, :count]
        return np.take_along_axis(squares, places, axis=1), places


class Loader:
    """Stands for the loader of the training samples of whichever client their worker is."""

    batch_size, drop_last = BATCH, False

    def __init__(self, worker, now, orders):
        self.worker, self.now, self.orders = worker, now, orders

    @property
    def _batches(self):
        client = self.worker.client_id
        rows = self.worker.trainset.indices
        left = self.orders.get((self.now["round"], client), [])
        data = self.worker.dataset
        return Batches(data.x[rows], data.y[rows], BATCH, left)

    def __len__(self):
        return len(self._batches)

    def __iter__(self):
        return iter(self._batches)

    @property
    def sampler(self):
        """The order of our next epoch, for loaders of their own."""
        left = self.orders[self.now["round"], self.worker.client_id]
        return types.SimpleNamespace(__iter__=None) if not left else _Order(left)


class _Order:
    def __init__(self, left):
        self.left = left

    def __iter__(self):
        return iter(self.left.pop(0).tolist())

    def __len__(self):
        return len(self.left[0])


@contextmanager
def imported(path, folder):
    """Their modules can be imported; what configures and reads files is stubbed. All of it goes again."""

    def ours(name):
        return name.split(".")[0] in ("src", "data") or name in ABSENT

    before = {name: module for name, module in sys.modules.items() if ours(name)}
    for name in before:
        del sys.modules[name]
    sys.path.insert(0, str(path))
    for name in ABSENT:
        sys.modules[name] = MagicMock()
    sys.modules["faiss"].IndexFlatL2 = Index
    sys.modules["omegaconf"].DictConfig = Config
    sys.modules["data.utils.datasets"].BaseDataset = Samples
    sys.modules["data.utils.datasets"].DATASETS = {}
    running = sys.modules["hydra.core.hydra_config"].HydraConfig.get.return_value
    running.runtime.output_dir = str(folder)
    try:
        yield
    finally:
        sys.path.remove(str(path))
        for name in [name for name in sys.modules if ours(name)]:
            del sys.modules[name]
        sys.modules.update(before)


def play(pair, fed, path):
    """Their server's rounds; what is seen after each."""
    with tempfile.TemporaryDirectory() as folder, imported(path, Path(folder)):
        return _play(pair, fed, Path(folder))


def _play(pair, fed, folder):
    module, _, name = pair.server.partition(":")
    networks = importlib.import_module("src.utils.models")
    constants = importlib.import_module("src.utils.constants")
    servers = importlib.import_module("src.server.fedavg")
    data, state = Samples(fed), (random.getstate(), np.random.get_state(), torch.get_rng_state())
    everyone = [*range(len(SIZES))]
    place = folder / "data" / DATA
    place.mkdir(parents=True)
    (place / "args.json").write_text(json.dumps({"split": "sample", "class_num": CLASSES}))
    separation = {"train": everyone, "test": everyone, "val": [], "total": len(everyone)}
    with (place / "partition.pkl").open("wb") as file:
        pickle.dump({"separation": separation, "data_indices": data.indices}, file)
    servers.FLBENCH_ROOT = folder
    constants.NUM_CLASSES[DATA] = CLASSES

    class Net(networks.DecoupledModel):
        def __init__(self, **_):
            super().__init__()
            self.base, self.classifier = base(fed.norm), torch.nn.Linear(12, CLASSES)
            self.double()
            for parameter, value in zip(self.parameters(), fed.initial(), strict=True):
                parameter.data = value.detach().clone()

    networks.MODELS[DATA] = Net
    theirs = getattr(importlib.import_module(module), name)
    args = Config.of(constants.DEFAULTS)
    args.dataset = Config(name=DATA, split="sample", monitor_window_name_suffix="")
    args.model.name = DATA
    args.optimizer.lr = RATE
    args.common.update(
        join_ratio=fed.config.participation, global_epoch=fed.config.rounds, batch_size=BATCH,
        local_epoch=fed.config.local_epochs, buffers="local", client_side_evaluation=False, save_log=False,
        save_learning_curve_plot=False, save_metrics=False, monitor=None,
    )  # fmt: skip
    args.common.test.server.interval = 0
    args.optimizer.weight_decay = pair.decay
    args.common.test.client.finetune_epoch = pair.fine_tuning
    method = module.rpartition(".")[2]
    options = vars(theirs.get_hyperparams([])) if hasattr(theirs, "get_hyperparams") else {}
    args[method] = Config({**options, **pair.options})
    now = {"round": pair.start}
    orders = {
        where: [one for _, _, one in (pair.order(epochs, where[0]) if pair.order else epochs)]
        for where, epochs in fed.orders.items()
    }

    class Watched(theirs):
        def get_dataset(self):
            return data

    try:
        made = Watched(args)
        made.client_sample_stream, made.now = fed.cohorts, now
        worker = made.trainer.worker
        worker.trainloader = Loader(worker, now, orders)
        if pair.prepare:
            pair.prepare(made, fed)
        found = []
        for number in range(1, pair.start + ROUNDS + 1):
            now["round"] = number
            made.current_epoch, made.selected_clients = number - 1, fed.cohorts[number - 1]
            made.train_one_round()
            found.append({what: copies(look(made)) for what, look in pair.theirs.items()})
        return found[pair.start :]
    finally:
        random.setstate(state[0])
        np.random.set_state(state[1])
        torch.set_rng_state(state[2])


# What is looked at on their side


def public(made):
    return made.public_model_params.values()


def of_clients(name="model"):
    """What their worker holds when it is each of the clients in turn."""

    def look(made):
        found, made.testing = [], True
        for client in range(len(SIZES)):
            made.trainer.worker.set_parameters(made.package(client))
            found += copies(getattr(made.trainer.worker, name).parameters())
        made.testing = False
        return found

    return look


def right(made):
    """Correct predictions of every client."""
    found, made.testing = [], True
    for client in range(len(SIZES)):
        metrics = made.trainer.worker.test(made.package(client))["before"]["test"]
        targets, predicted = torch.as_tensor(metrics._targets), torch.as_tensor(metrics._predicts)
        found.append(int((targets == predicted).sum()))
    made.testing = False
    return [torch.tensor(found)]


def right_after(made):
    """Likewise, after fine-tuning."""
    found, made.testing, before = [], True, made.now["round"]
    made.now["round"] = ROUNDS + 1
    for client in range(len(SIZES)):
        metrics = made.trainer.worker.test(made.package(client))["after"]["test"]
        targets, predicted = torch.as_tensor(metrics._targets), torch.as_tensor(metrics._predicts)
        found.append(int((targets == predicted).sum()))
    made.testing, made.now["round"] = False, before
    return [torch.tensor(found)]


def from_tau(made, fed):
    """FedAdam: squares begin at τ², not at 0."""
    for square in made.adaptive_optimizer.velocities:
        square += fed.hyper.tau**2


def same_hypernetwork(made, fed):
    """pFedHN: the hypernetwork is ours at first."""
    values = {n: t for n, t in fed.method(fed.task, fed.hyper).server.items() if n.startswith("phi.")}
    vectors, *hidden, weight, bias = values.values()
    net = made.hypernet
    outs = [*net.params_generator.values()]
    with torch.no_grad():
        for parameter, value in zip(
            [net.embedding.weight, *net.mlp.parameters()], [vectors, *hidden], strict=True
        ):
            parameter.copy_(value)
        rows = [part.out_features for part in outs]
        for part, w, b in zip(outs, weight.split(rows), bias.split(rows), strict=True):
            part.weight.copy_(w)
            part.bias.copy_(b)


def learners(made, fed):
    """FedEM: the components are ours at first."""
    from pfl_benchmark.method import strip_prefix

    start = fed.method(fed.task, fed.hyper).server
    values = [t for m in range(3) for t in strip_prefix(f"component{m}", start).values()]
    for parameter, value in zip(made.public_model_params.values(), values, strict=True):
        parameter.data = value.detach().double().clone()


def learners_kept(made, fed):
    """FedEM: likewise, and the clients' mixture weights are kept."""
    learners(made, fed)
    aggregate = made.aggregate_client_updates

    def keep(packages):
        for client, package in packages.items():
            made.client_learner_weights[client] = package["learner_weights"]
        aggregate(packages)

    made.aggregate_client_updates = keep


def hypernetwork(algorithm):
    values = [t for n, t in algorithm.server.items() if n.startswith("phi.")]
    vectors, *hidden, weight, bias = values
    return [vectors, *hidden, weight, bias]


def their_hypernetwork(made):
    net, outs = made.hypernet, [*made.hypernet.params_generator.values()]
    weight, bias = torch.cat([part.weight for part in outs]), torch.cat([part.bias for part in outs])
    return [net.embedding.weight, *net.mlp.parameters(), weight, bias]


def shuffled_learners(made, fed):
    """FedEM: likewise, and the samples of a batch are in another order than that of storage."""
    learners_kept(made, fed)
    loader, orders = made.trainer.worker.trainloader, made.trainer.worker.trainloader.orders
    loader.orders = {
        place: [one.reshape(-1, BATCH)[:, ::-1].flatten() for one in epochs]
        for place, epochs in orders.items()
    }


def through_the_body(made, fed):
    """FLUTE: gradients of the loss reach the body."""
    model = made.trainer.worker.model
    model.get_last_features = lambda x, own=model.get_last_features: own(x, detach=False)


def bodies(made):
    """The public model without the head."""
    return [*made.public_model_params.values()][:-2]


STEP = np.array([0.37, 0.2, 0.55, 0.9])  # Floco: what every step draws


class EveryStep(Streams):
    """Floco: the same numbers in every step."""

    def get(self, purpose, round=0, client=0):
        found = super().get(purpose, round, client)
        same = types.SimpleNamespace(random=lambda shape, dtype: np.broadcast_to(STEP, shape).copy())
        return same if purpose.startswith("step") else found


def points_of_one_training(made, fed):
    """Floco: endpoints and draws are ours, and what gives the points is averaged, too."""

    class Drawn:
        exponential = staticmethod(lambda scale, size: -scale * np.log1p(-STEP[1:]))
        uniform = staticmethod(
            lambda low, high, size=None: low + (high - low) * (STEP[0] if size is None else STEP[1:])
        )

    class Numbers:
        random = Drawn

        def __getattr__(self, name):
            return getattr(np, name)

    sys.modules["src.server.floco"].np = Numbers()
    ours, train, first = fed.method(fed.task, fed.hyper).server, made.trainer.train, []
    public = made.public_model_params
    public["classifier.bias"].data = ours["fc.bias"].clone()
    for number, endpoint in enumerate(ours["simplex.weight"]):
        public[f"classifier._weights.{number}"].data = endpoint.clone()

    def trained():
        if made.current_epoch != made.args.floco.tau:
            return train()
        if not first:
            first.append(train())
        return first[0]

    made.trainer.train = trained


def simplex(algorithm):
    return [*server(algorithm), algorithm.server["simplex.weight"]]


def their_simplex(made):
    params = {n: t for n, t in made.public_model_params.items() if n != "classifier.weight"}
    ends = [params.pop(name) for name in [*params] if "_weights" in name]
    return [*params.values(), torch.stack(ends)]


def their_mixtures(made):
    """Every client's model, with the head at its point."""
    *body, bias, ends = their_simplex(made)
    points = made.projected_clients
    found = []
    for client in range(len(SIZES)):
        shares = torch.full((len(ends),), 1 / len(ends)) if points is None else torch.tensor(points[client])
        found += [*body, torch.tensordot(shares, ends, 1), bias]
    return found


def their_weights(made):
    even = torch.full((3,), 1 / 3)
    found = made.client_learner_weights.values()
    return [even if weights is None else weights for weights in found]


def components(algorithm):
    return [t for n, t in algorithm.server.items() if n.startswith("component")]


ALL = {"server": public, "clients": of_clients(), "correct": right}
OURS = {"server": server, "clients": models, "correct": correct}
CODE = "src.server."


def pair(algo, module, *given, **more):
    return Pair(algo, f"{CODE}{module}", *given, source="flbench", **more)


_FLUTE = ("flute", "flute:FLUTEServer", {"lam1": 0.3, "lam2": 0.02, "lam3": 0.01, "server_lr": 2.0},
          {"lamda1": 0.3, "lamda2": 0.02, "lamda3": 0.01, "nc2_lr": 2.0})  # fmt: skip

PAIRS = [
    pair("fedavg", "fedavg:FedAvgServer", theirs=ALL),
    pair(
        *_FLUTE, theirs={**ALL, "server": bodies}, ours=OURS, prepare=through_the_body, participations=(1.0,),
        left_out=("participation 0.6: heads are averaged, too, and are what a client begins with that takes "
                  "part for the first time",),
    ),
    pair(
        *_FLUTE, theirs={**ALL, "server": bodies}, ours=OURS, variant="features", within=None,
        participations=(1.0,),
        deviates=("the loss is taken of detached features, so that the body is never trained",),
    ),
    pair(
        "floco", "floco:FlocoServer", {"endpoints": 3, "rho": 0.2}, {"endpoints": 3, "rho": 0.2, "tau": 1},
        prepare=points_of_one_training, streams=EveryStep, ours={**OURS, "server": simplex},
        theirs={"server": their_simplex, "clients": their_mixtures, "correct": right},
        left_out=("which mixtures are drawn: the same in every step on both sides",
                  "that round τ trains twice there: what gives the points is averaged, too"),
    ),
    pair("local", "local:LocalServer", theirs={**ALL}, ours={"clients": models, "correct": correct}),
    pair("fedavgm", "fedavgm:FedAvgMServer", {"server_rate": 1.0, "nesterov": True}, theirs=ALL),
    *(
        pair(
            "fedadam", "fedopt:FedOptServer", {"server_rate": 0.02, "squares": kind},
            {"type": kind, "server_lr": 0.02, "beta2": 0.99}, theirs=ALL, prepare=from_tau, variant=kind,
            left_out=("squares begin at τ² as in the publication; there at 0",),
        )
        for kind in ("adam", "yogi", "adagrad")
    ),
    pair(
        "apfl", "apfl:APFLServer", {"alpha": 0.5, "adaptive": False}, {"alpha": 0.5, "adaptive_alpha": 0},
        ours={**OURS, "clients": kept("personal")}, theirs={**ALL, "clients": of_clients("local_model")},
        within=None, deviates=("outputs are mixed, not parameters", "the personal model's step moves the "
                               "global one again, whose old gradient is still there"),
    ),
    pair(
        "feddyn", "feddyn:FedDynServer", {"alpha": 0.1, "clip": 0.0, "evaluate": "server"},
        {"alpha": 0.1, "max_grad_norm": 1e9}, decay=0.1, sizes=(30,) * len(SIZES), theirs=ALL,
        left_out=("clients of different sizes: α has one value there, here one for each client's size",
                  "the term α w of the gradient, which is missing there: it is given as weight decay",
                  "the cut of gradients, here of the whole gradient"),
    ),
    pair(
        "feddyn", "feddyn:FedDynServer", {"alpha": 0.1, "clip": 0.0, "evaluate": "server"},
        {"alpha": 0.1, "max_grad_norm": 1e9}, sizes=(30,) * len(SIZES), theirs=ALL, within=None,
        variant="term", deviates=("the term α w of the gradient is missing",),
    ),
    pair(
        "knn-per", "knnper:kNNPerServer", theirs={"server": public}, ours={"server": server},
        left_out=("evaluation",),
    ),
    pair(
        "knn-per", "knnper:kNNPerServer", {"neighbours": 5, "weight": 0.5}, {"k": 5, "weight": 0.5},
        theirs={"correct": right}, ours={"correct": correct}, variant="evaluation", within=None,
        deviates=("shares of the neighbours' classes are mixed with logits, not with probabilities",),
    ),
    pair(
        "fedem", "fedem:FedEMServer", {"components": 3}, {"n_learners": 3}, prepare=learners_kept,
        ours={"server": components, "weights": kept("mixture")}, sorted_batches=True,
        theirs={"server": public, "weights": their_weights}, changes={"local_epochs": 1},
        left_out=("evaluation: there logits are mixed, here probabilities",
                  "orders in which the samples of a batch are not in the order of storage",
                  "that mixture weights are not stored there: they are kept"),
    ),
    pair(
        "fedem", "fedem:FedEMServer", {"components": 3}, {"n_learners": 3}, prepare=learners, within=None,
        ours={"server": components}, theirs={"server": public}, changes={"local_epochs": 1},
        sorted_batches=True, variant="forgotten",
        deviates=("the clients' mixture weights are not stored: every participation begins with equal ones",),
    ),
    pair(
        "fedem", "fedem:FedEMServer", {"components": 3}, {"n_learners": 3}, prepare=shuffled_learners,
        within=None, ours={"server": components}, theirs={"server": public}, changes={"local_epochs": 1},
        sorted_batches=True, variant="misaligned",
        deviates=("weights of a batch's samples are in the order of storage, not of the batch",),
    ),
    pair("fedavg-ft", "fedavg:FedAvgServer", {"ft_epochs": 2}, fine_tuning=2,
         theirs={"server": public, "correct": right_after}, ours={"server": server, "correct": adapted}),
    pair("fedbabu", "fedbabu:FedBabuServer", {"ft_epochs": 2}, fine_tuning=2,
         theirs={"server": lambda made: [*public(made)][:4], "correct": right_after},
         ours={"server": server, "correct": adapted}),
    pair(
        "phn", "pfedhn:pFedHNServer", {"local_clip": 1e9}, {"embed_dim": 2}, prepare=same_hypernetwork,
        participations=(0.2,), ours={"server": hypernetwork, "clients": models},
        theirs={"server": their_hypernetwork, "clients": of_clients()},
        left_out=("rounds of several participants: there a step of the hypernetwork follows each",
                  "the cut of local gradients: there is none",
                  "the length of a client's vector: a quarter of one more than the clients there, one more "
                  "than a quarter of the clients here and in the official code"),
    ),
]  # fmt: skip
