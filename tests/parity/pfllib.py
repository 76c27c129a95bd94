"""PFLlib's servers and clients on the small federation, by stubs of what reads files."""

import copy
import importlib
import importlib.util
import random
import sys
import types
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from checkouts import PFLLIB
from federation import BATCH, CLASSES, RATE, ROUNDS, SIZES, base, copies, correct, kept, models, server

from pfl_benchmark.algorithms import fedcp, gpfl
from pfl_benchmark.engine.streams import Streams

STUBS = ("h5py", "calmsize", "cvxpy", "ujson", "utils.dlg", "utils.data_utils")

OPTIONAL = ("cvxpy",)

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
    start: rounds here that are their preparation.
    selects: how often they draw the participants of a round.
    sizes: of the clients' training data.
    decay, fine_tuning: their weight decay, and epochs before the evaluation.
    sorted_batches: see `federation.recorded`.
    needs: a package that their code imports for what is compared.
    draw: what stands for their `random.sample`; None: the first ones, so that sums have our order.
    left_out: what is not compared, and why.
    deviates: where their code differs from the publication.
    within: the largest gap that counts as equal; None: it is not equal, and the gap says how far.
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
    start: int = 0
    selects: int = 1
    needs: str = ""
    sizes: tuple = SIZES
    decay: float = 0.0
    fine_tuning: int = 0
    sorted_batches: bool = False
    participations: tuple = (1.0, 0.6)
    changes: dict = field(default_factory=dict)
    streams: object = None
    draw: object = None
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
        if name not in sys.modules and not (name in OPTIONAL and importlib.util.find_spec(name)):
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
    now, found = {"round": pair.start, "calls": 0}, []
    orders = {
        place: [one for _, _, one in (pair.order(epochs, place[0]) if pair.order else epochs)]
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
            now["round"] += now["calls"] % pair.selects == 0
            now["calls"] += 1
            self.current_num_join_clients = self.num_join_clients
            return [self.clients[client] for client in fed.cohorts[now["round"] - 1]]

        def evaluate(self, acc=None, loss=None):
            if now["round"] > pair.start + 1:
                found.append({what: copies(look(self)) for what, look in pair.theirs.items()})
            if len(found) == ROUNDS:
                raise Over

        def evaluate_personalized(self):
            if theirs.__name__ != "Ditto":
                self.evaluate()

        evaluate_one_step = evaluate

    state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    shuffled = random.sample
    random.sample = pair.draw or (lambda population, count: list(population)[:count])
    made = Watched(arguments, 0)
    if pair.prepare:
        pair.prepare(made, fed)
    try:
        made.train()
    except Over:
        pass
    finally:
        random.sample = shuffled
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


def without_gradients(name):
    """Changes a method of their clients so that its passes over data take no epoch of ours."""

    def prepare(made, fed):
        for client in made.clients:
            setattr(client, name, torch.no_grad()(getattr(client, name)))

    return prepare


def never_trained(made, fed):
    """MOON: what a client contrasts with before it has trained is the model that it has received."""
    for client in made.clients:
        client.fresh = True

        def train(client=client, own=client.train):
            if client.fresh:
                client.old_model = copy.deepcopy(client.model)
            client.fresh = False
            own()

        client.train = train


def weighted_prototypes(made, fed):
    """FedPAC: class means are weighted by samples, as in the official code."""
    without_gradients("statistics_extraction")(made, fed)

    def weighted(uploaded):
        found = {}
        counts = [torch.bincount(fed.samples(c.id)[1], minlength=CLASSES) for c in made.selected_clients]
        for label in range(CLASSES):
            pairs = [(n[label], own[label]) for n, own in zip(counts, uploaded, strict=True) if label in own]
            if pairs:
                found[label] = sum(n * mean for n, mean in pairs) / sum(n for n, _ in pairs)
        return found

    module = sys.modules["flcore.servers.serverpac"]
    module.proto_aggregation = weighted
    solver = module.cvx

    class Exact(solver.Problem):
        def solve(self):
            return super().solve(solver=solver.CLARABEL)

    names = {name: getattr(solver, name) for name in ("Variable", "Minimize", "quad_form", "sum")}
    module.cvx = types.SimpleNamespace(**names, Problem=Exact)
    solve = module.solve_quadratic
    module.solve_quadratic = lambda *of: [np.array(row) / np.sum(row) for row in solve(*of)]


def heads_together(made, fed):
    """FedPAC: likewise, and all heads are combined of those that were sent."""
    weighted_prototypes(made, fed)
    receive = made.receive_models

    def received():
        receive()
        made.uploaded_heads = copy.deepcopy(made.uploaded_heads)

    made.receive_models = received


def mixed_at_once(made, fed):
    """FedCAC: models of similar clients are mixed after the first round, too."""
    aggregate = made.aggregate_parameters

    def aggregated():
        aggregate()
        if made.epoch == 0:
            made.get_customized_global_models()

    made.aggregate_parameters = aggregated


def theta_kept(made, fed):
    """pFedMe: θ is noted before it is overwritten."""
    for client in made.clients:
        client.theta = copies(client.personalized_params)

        def update(model, params, client=client, own=client.update_parameters):
            client.theta = copies(client.personalized_params)
            own(model, params)

        client.update_parameters = update


def guides(made, fed):
    """GPFL: valve and embeddings are ours at first."""
    ours = fed.method(fed.task, fed.hyper).server
    values = [ours[name] for name in gpfl.GUIDES]
    for client in made.clients:
        own = [*client.GCE.parameters(), *client.CoV.parameters()]
        for parameter, value in zip(own, values, strict=True):
            parameter.data = value.detach().clone()
        client.GCE_frozen = copy.deepcopy(client.GCE)


def guides_and_contexts(made, fed):
    """GPFL: likewise, and contexts are made of the embeddings as received."""
    guides(made, fed)
    for client in made.clients:

        def contexts(client=client):
            vectors = client.GCE.embedding.weight.detach()
            client.generic_conditional_input = vectors.mean(0)
            client.personalized_conditional_input = client.sample_per_class @ vectors

        def receive(embeddings, own=client.set_GCE, after=contexts):
            own(embeddings)
            after()

        contexts()
        client.set_GCE = receive


def settled(made, fed):
    """FedALA: the weights are learned for one epoch the first time, too."""
    for client in made.clients:
        client.ALA.start_phase = False


def mixed_in_order(made, fed):
    """FedAH: heads are mixed on the samples in the order in which they are stored."""
    for client in made.clients:

        def aggregate(client=client, own=client.aggregate_head, load=client.load_train_data):
            client.load_train_data = lambda: Batches(*fed.samples(client.id), BATCH, [])
            own()
            client.load_train_data = load

        client.aggregate_head = aggregate


def held_out(made, fed):
    """FedFomo: batches of the first four fifths of the samples are ours, the others are for validation."""
    for client in made.clients:

        def load(client=client):
            whole = super(type(client), client).load_train_data()
            first = len(whole.y) * 4 // 5
            return whole, Batches(whole.x[first:], whole.y[first:], BATCH, [])

        client.load_train_data = load


def by_absolutes(made, fed):
    """FedFomo: likewise, and distances of models are sums of absolute differences, as here."""
    held_out(made, fed)
    names = {name: getattr(torch, name) for name in ("cat", "maximum", "sum", "tensor", "zeros")}
    module = sys.modules["flcore.clients.clientfomo"]
    module.torch = types.SimpleNamespace(norm=lambda gaps: gaps.abs().sum() - 1e-5, **names)


def unbatched(made, fed):
    """FedAS: the batches of the alignment have the size of the others."""
    for client in made.clients:
        client.load_train_data = lambda batch_size=None, own=client.load_train_data: own()


class Silent(Streams):
    """FedCP: every number that the gate's noise is made of is the same, so that it changes no share."""

    def get(self, purpose, round=0, client=0):
        found = super().get(purpose, round, client)
        same = types.SimpleNamespace(random=lambda shape, dtype: np.full(shape, np.exp(-1), dtype))
        return same if purpose.startswith("step") else found


def gate_everywhere(made, fed):
    """FedCP: the gate is ours at first and without noise, and everybody receives global head and gate."""
    module = sys.modules["flcore.servers.servercp"]
    module.F = types.SimpleNamespace(gumbel_softmax=lambda x, dim, tau, hard: x.softmax(dim))
    ours = fed.method(fed.task, fed.hyper).server
    for client in made.clients:
        for parameter, name in zip(client.model.gate.cs.parameters(), fedcp.GATE, strict=True):
            parameter.data = ours[name].detach().clone()
        client.set_head_g(client.model.head_g)  # the context of the first round, drawn at random there
    head, gate = made.global_head, made.global_cs

    def global_head():
        head()
        for client in made.clients:
            client.set_head_g(made.head)

    def global_gate():
        gate()
        for client in made.clients:
            client.set_cs(made.cs)

    made.global_head, made.global_cs = global_head, global_gate


class InOrder(Streams):
    """FedALA's samples are taken in the order in which they are stored."""

    def get(self, purpose, round=0, client=0):
        found = super().get(purpose, round, client)
        return types.SimpleNamespace(permutation=np.arange) if purpose == "folds" else found


class LastHeldOut(Streams):
    """FedFomo: the last fifth of the samples is held out, and comes last in every epoch."""

    def get(self, purpose, round=0, client=0):
        found = super().get(purpose, round, client)

        def last(size):
            first = size * 4 // 5
            return np.concatenate([found.permutation(first), np.arange(first, size)])

        if purpose == "holdout":
            return types.SimpleNamespace(permutation=lambda size: np.arange(size)[::-1])
        return types.SimpleNamespace(permutation=last) if purpose.startswith("batches") else found


def without_held_out(epochs, number):
    return [(model, stream, order[: len(order) * 4 // 5]) for model, stream, order in epochs]


def natural_first(epochs, number):
    return [("", "", np.arange(len(epochs[0][2]))), *epochs]


def first_round_natural_first(epochs, number):
    return natural_first(epochs, number) if number == 1 else epochs


def personal_first(epochs, number):
    return sorted(epochs, key=lambda epoch: epoch[0] != "personal")


def halves(epochs, number):
    """Per-FedAvg: the two batches of a step are halves of a double batch there, every second sample here."""

    def changed(order):
        return np.concatenate([np.concatenate([b[::2], b[1::2]]) for b in order.reshape(-1, 2 * BATCH)])

    return [(model, stream, changed(order)) for model, stream, order in epochs]


def controls(algorithm):
    return [t for n, t in algorithm.server.items() if n.startswith("control.")]


def scaffold_model(algorithm):
    return [algorithm.server[name] for name in algorithm.network.shapes()]


def gpfl_server(algorithm):
    return [*server(algorithm), *(algorithm.server[name] for name in gpfl.GUIDES)]


def fedcp_server(algorithm):
    names = [name for name in algorithm.server if name not in (*fedcp.HEAD, *fedcp.GATE)]
    return [algorithm.server[name] for name in (*names, *fedcp.HEAD, *fedcp.GATE)]


def their_fedcp(made):
    return [t for part in (made.global_modules, made.head, made.cs) for t in part.parameters()]


def their_gpfl(made):
    return [*made.global_model.parameters(), *made.GCE.parameters(), *made.CoV.parameters()]


def dbe_server(algorithm):
    return server(algorithm)


def own_controls(algorithm):
    return kept("control")(algorithm)


def thetas(algorithm):
    return kept("theta")(algorithm)


def clouds(algorithm):
    found = algorithm.message(range(len(SIZES)), ROUNDS + 1).per_client
    return [t[client] for client in range(len(SIZES)) for t in found.values()]


def pac_models(algorithm):
    heads = algorithm._heads.gather(range(len(SIZES)))
    body = [algorithm.server[name] for name in algorithm._body]
    return [t for client in range(len(SIZES)) for t in (*body, *(head[client] for head in heads.values()))]


def prototypes(algorithm):
    return [algorithm.server["prototypes"][algorithm.server["known"].bool()]]


def their_prototypes(made):
    return [torch.stack([made.global_protos[label] for label in sorted(made.global_protos)])]


def bodies(made):
    return made.global_model.base.parameters()


def flat(name):
    """Tensors that their clients keep in a list."""
    return lambda made: [t for client in made.clients for t in getattr(client, name)]


ALL = {"server": global_model, "clients": of_clients(), "correct": right()}
OURS = {"server": server, "clients": models, "correct": correct}
PERSONAL = {"clients": models, "correct": correct}
UNIFORM = {"aggregation": "uniform"}
CODE = "flcore.servers.server"
MOON = {"algo": "moon", "server": f"{CODE}moon:MOON", "hyper": {"mu": 2.0, "temperature": 0.5},
        "options": {"mu": 2.0, "tau": 0.5}, "theirs": ALL}  # fmt: skip
GPFL = {"algo": "gpfl", "server": f"{CODE}gpfl:GPFL", "hyper": {"lam": 0.05, "mu": 0.1},
        "options": {"lamda": 0.05, "mu": 0.1}}  # fmt: skip
PROTO = {"algo": "fedproto", "server": f"{CODE}proto:FedProto", "hyper": {"lam": 2.0},
         "options": {"lamda": 2.0}, "ours": {"prototypes": prototypes, "clients": models},
         "theirs": {"prototypes": their_prototypes, "clients": of_clients()}}  # fmt: skip
PAC = {"algo": "fedpac", "server": f"{CODE}pac:FedPAC", "hyper": {"lam": 2.0, "head_rate": RATE},
       "options": {"lamda": 2.0}, "needs": "cvxpy",
       "ours": {"server": server, "prototypes": prototypes, "clients": pac_models},
       "theirs": {"server": lambda made: [*made.global_model.parameters()],
                  "prototypes": their_prototypes, "clients": of_clients()}}  # fmt: skip
FOMO = {"algo": "fedfomo", "server": f"{CODE}fomo:FedFomo", "hyper": {"models": 4, "holdout": 0.2},
        "options": {"M": len(SIZES), "local_learning_rate": RATE / 0.8}, "sizes": (25, 50, 75, 25, 50),
        "streams": LastHeldOut, "order": without_held_out, "participations": (1.0,),
        "ours": PERSONAL, "theirs": ALL}  # fmt: skip

PAIRS = [
    Pair("fedavg", f"{CODE}avg:FedAvg", theirs=ALL),
    Pair("fedprox", f"{CODE}prox:FedProx", {"mu": 0.3}, {"mu": 0.3}, theirs=ALL),
    Pair("fedper", f"{CODE}per:FedPer", theirs=ALL),
    Pair("fedrep", f"{CODE}rep:FedRep", {"head_epochs": 2, "body_epochs": 2}, theirs=ALL),
    Pair("lg-fedavg", f"{CODE}lg:LG_FedAvg", {"lg_shared": 1}, theirs=ALL),
    Pair("local", f"{CODE}local:Local", ours=PERSONAL, theirs={**ALL}, selects=2),
    Pair(
        "fedbn", f"{CODE}bn:FedBN", norm=True, theirs={"clients": of_clients()}, ours={"clients": models},
        left_out=("running statistics, and with them the evaluation",),
    ),
    Pair(
        "ditto", f"{CODE}ditto:Ditto", {"lam": 0.7}, {"mu": 0.7}, order=personal_first,
        theirs={"server": global_model, "clients": of_clients("model_per"),
                "correct": right("test_metrics_personalized")},
    ),
    Pair(
        "scaffold", f"{CODE}scaffold:SCAFFOLD", {}, {"server_learning_rate": 1.0}, changes=UNIFORM,
        ours={**OURS, "server": scaffold_model,
              "controls": controls, "own controls": own_controls},
        theirs={**ALL, "controls": lambda made: made.global_c, "own controls": flat("client_c")},
    ),
    Pair(
        **MOON, prepare=never_trained,
        left_out=("a client's first training after the first round: theirs contrasts with the untrained "
                  "model, which is replaced by the received one, so that nothing is contrasted",),
    ),
    Pair(
        **MOON, variant="untrained", participations=(0.6,), within=None,
        deviates=("a client that trains for the first time after the first round contrasts with the "
                  "untrained model",),
    ),
    Pair(
        "fedala", f"{CODE}ala:FedALA", {"layers": 1, "part": 1.0}, {"eta": 1.0, "rand_percent": 100,
        "layer_idx": 2}, streams=InOrder, prepare=settled, participations=(1.0,),
        ours={**OURS}, theirs=ALL,
        left_out=("a client's first learning of the weights, theirs until losses settle",
                  "participation 0.6: all clients learn weights in every round there, here participants",
                  "which samples are drawn: all are"),
    ),
    Pair(
        "fedah", f"{CODE}ah:FedAH", {"layers": 1, "part": 1.0, "ala_epochs": 2, "head_epochs": 2},
        {"plocal_epochs": 2, "privacy": False, "dp_sigma": 0.0}, streams=InOrder, prepare=mixed_in_order,
        participations=(1.0,), ours=OURS, theirs=ALL, source="fedah",
        left_out=("participation 0.6: all clients mix heads in every round there, here participants",
                  "the order of the samples that heads are mixed on: as they are stored"),
    ),
    Pair(
        **FOMO, prepare=by_absolutes,
        left_out=("distances of models: sums of absolute differences on both sides",
                  "which models are sent: all, and which samples are held out: the last fifth",
                  "the factor 1 / 0.8 of steps here, which is their learning rate's",
                  "participation 0.6: models of earlier rounds are sent there, too"),
        deviates=("where no model lowers the validation loss, a client goes on from what it has trained, not "
                  "from what that training began with",),
    ),
    Pair(
        **FOMO, variant="norm", within=None, prepare=held_out,
        deviates=("distances of models are Euclidean, not the sums of absolute differences of the official "
                  "code",),
    ),
    Pair(
        "fedcp", f"{CODE}cp:FedCP", {"lam": 2.0}, {"lamda": 2.0}, prepare=gate_everywhere, streams=Silent,
        ours={**OURS, "server": fedcp_server},
        theirs={**ALL, "server": their_fedcp, "clients": lambda made: [
            p for client in made.clients for p in client.model.model.parameters()]},
        left_out=("the noise of the gate: there is none on both sides",
                  "the context of the first round, which theirs draws at random",
                  "participation 0.6: there only participants receive global head and gate, here everybody"),
    ),
    Pair(
        "fedcac", f"{CODE}cac:FedCAC", {"tau": 0.4, "beta": 5}, {"tau": 0.4, "beta": 5}, theirs=ALL,
        prepare=mixed_at_once,
        left_out=("critical parameters after the first round, which theirs set back to the initial values",),
    ),
    Pair(
        "apfl", f"{CODE}apfl:APFL", {"alpha": 0.5, "adaptive": False}, {"alpha": 0.5},
        ours={"server": server}, theirs={"server": global_model},
        left_out=("the personal model and its weight, which no public code compared trains as published",),
    ),
    Pair(
        "apfl", f"{CODE}apfl:APFL", {"alpha": 0.5, "adaptive": False}, {"alpha": 0.5}, within=None,
        variant="personal", ours=OURS, theirs={**ALL, "clients": of_clients("model_per")},
        deviates=("the personal model is trained on its own loss, not on that of the mixture, and is "
                  "replaced by the mixture at the end of its training", "α is always learned"),
    ),
    Pair(
        "pfedme", f"{CODE}pFedMe:pFedMe", {"lam": 15.0}, {"lamda": 15.0, "K": 5, "p_learning_rate": 0.01,
        "beta": 1.0}, ours={"server": server, "clients": thetas}, prepare=theta_kept,
        theirs={"server": global_model, "clients": flat("theta")},
        left_out=("evaluation: θ is overwritten before it",),
    ),
    Pair(
        "pfedme", f"{CODE}pFedMe:pFedMe", {"lam": 15.0}, {"lamda": 15.0, "K": 5, "p_learning_rate": 0.01,
        "beta": 1.0}, ours={"clients": thetas}, theirs={"clients": flat("personalized_params")},
        variant="overwritten", within=None,
        deviates=("θ is overwritten with w at the end of the training, so that w is what is evaluated",),
    ),
    Pair(
        "per-fedavg", f"{CODE}peravg:PerAvg", {"alpha": RATE}, {"local_epochs": 1}, order=halves,
        ours={"server": server, "clients": models}, theirs={"server": global_model, "clients": of_clients()},
        left_out=("the step before the evaluation: one batch there, an epoch here",),
    ),
    Pair(
        "fedamp", f"{CODE}amp:FedAMP", {"lam": 0.0, "alpha": 0.2, "sigma": 1.0},
        {"lamda": 1.0, "alphaK": 0.2, "sigma": 1.0}, participations=(1.0,),
        ours={**PERSONAL, "clouds": clouds}, theirs={**ALL, "clouds": of_clients("client_u")},
        left_out=("the pull: λ = 0 here", "participation 0.6: there the last participants' models are mixed, "
                  "here those of all that have taken part"),
    ),
    Pair(
        "fedamp", f"{CODE}amp:FedAMP", {"lam": 1.0, "alpha": 1.0, "sigma": 1.0},
        {"lamda": 1.0, "alphaK": 1.0, "sigma": 1.0}, participations=(1.0,), variant="pull", within=None,
        ours=PERSONAL, theirs=ALL,
        deviates=("nothing pulls the models to their mixtures: the term is made of values without gradient",),
    ),
    Pair(**PROTO, changes={**UNIFORM, "local_epochs": 1}, participations=(1.0,),
         left_out=("evaluation: there among all classes that have a prototype, here among the client's",
                   "participation 0.6: classes of nobody in a round lose their prototype there, and keep it "
                   "here")),
    Pair(**PROTO, changes=UNIFORM, variant="two-epochs", within=None, participations=(1.0,),
         deviates=("prototypes are means over the features of all local epochs, not of the last one",)),
    Pair(
        "fedrod", f"{CODE}rod:FedROD", within=1e-7,
        ours={**OURS, "heads": kept("personal")}, theirs={**ALL, "heads": of_clients("head")},
    ),
    Pair(
        **GPFL, prepare=guides_and_contexts, ours={**OURS, "server": gpfl_server},
        theirs={**ALL, "server": their_gpfl},
        left_out=("which embeddings contexts are made of: those received, on both sides",),
    ),
    Pair(
        **GPFL, variant="contexts", prepare=guides, within=None,
        ours={**OURS, "server": gpfl_server}, theirs={**ALL, "server": their_gpfl},
        deviates=("contexts are made of a client's own embeddings from before it replaces them, and are 0 in "
                  "the first round",),
    ),
    Pair(
        "feddbe", f"{CODE}dbe:FedDBE", {"kappa": 50.0, "mu": 0.1},
        {"kl_weight": 50.0 * 12 / 512, "momentum": 0.1}, start=1, order=first_round_natural_first,
        ours={"server": dbe_server, "vectors": kept("bias"), "correct": correct},
        theirs={**ALL, "vectors": lambda made: [client.client_mean for client in made.clients]},
        left_out=("κ stands for 512 features here, and is converted",),
    ),
    Pair(**PAC, within=1e-5, prepare=heads_together, participations=(1.0,),
         left_out=("evaluation: there of the combined heads, here of the models as trained",
                   "weights of class means: by samples here and in the official code",
                   "weights of heads sum to 1 on both sides, after small ones were set to 0",
                   "participation 0.6: classes of nobody in a round lose their mean there, not here")),
    Pair(**PAC, variant="means", within=None, prepare=without_gradients("statistics_extraction"),
         participations=(1.0,),
         deviates=("class means of clients are averaged without weights; with the next one",)),
    Pair(**PAC, variant="sequential", within=None, prepare=weighted_prototypes, participations=(1.0,),
         deviates=("heads are combined one client after the other, of heads that are combined already",)),
    Pair(**PAC, variant="shuffled", within=None, prepare=heads_together, participations=(1.0,),
         draw=lambda population, count: list(population)[::-1][:count],
         deviates=("models are taken up in a random order (here the reverse one), and heads with them, but "
                   "not the statistics that weight them",)),
    Pair(
        "fedas", f"{CODE}as:FedAS", changes=UNIFORM, order=natural_first, prepare=unbatched,
        theirs={**ALL, "server": bodies},
        left_out=("batches of the alignment: 16 samples there, those of the training here",),
    ),
    Pair("fedbabu", f"{CODE}babu:FedBABU", {}, {"fine_tuning_epochs": 1}, theirs=ALL,
         left_out=("fine-tuning",),
         deviates=("every client fine-tunes the body of its own last training or of the last message, not "
                   "the last mean",)),
    Pair(
        "feddyn", f"{CODE}dyn:FedDyn", {"alpha": 0.1, "clip": 0.0, "evaluate": "server"}, {"alpha": 0.1},
        changes=UNIFORM, within=None, theirs=ALL,
        deviates=("the pull is by the norm of the gap, not by half of its square",),
    ),
]  # fmt: skip
