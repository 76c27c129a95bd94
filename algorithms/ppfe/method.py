"""PPFE: the method as hooks of the common round loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pfl_benchmark.algorithms.decoupled import Decoupled, check_start
from pfl_benchmark.algorithms.ppfe.diagnostics import StageRecord, describe
from pfl_benchmark.algorithms.ppfe.ensemble import ensemble_weights
from pfl_benchmark.algorithms.ppfe.hyper import (
    ABLATIONS,
    TEXT_ROUNDS,
    PPFEHyper,
    check_switches,
    remedies,
)
from pfl_benchmark.algorithms.ppfe.reduction import REDUCTIONS, Step
from pfl_benchmark.algorithms.ppfe.stages import (
    Stage,
    beginnings,
    check_stages,
    describe_plan,
    from_server,
    least_rounds,
    plan_stages,
)
from pfl_benchmark.algorithms.ppfe.weighting import SampleWeights
from pfl_benchmark.method import (
    ClientStore,
    Ledger,
    LocalCall,
    LocalResult,
    Message,
    Network,
    Params,
    Phase,
    RoundKind,
    RunConfig,
    RunContext,
    SharedRounds,
    StackedModel,
    UserError,
    chunks,
    clone,
    expand,
    register,
)


@register
class PPFE(Decoupled):
    """Stages of growing personalization, each started from earlier ones, boosted into an ensemble.

    Stage 1 is FedAvg. Stage t makes the last t − 1 layers personal, shrinks the fully connected layers from
    stage 3 on, and trains with sample weights that grow where the previous stage did badly. The final model
    of a client is the β-weighted sum of its stage models. Evaluations on the way are of the stage model being
    trained; the last one is of the ensemble.

    Source: paper, section 4, Algorithm 1 and appendix; no official code is public.

    Defaults: those of `PPFEHyper`, readings of what the paper leaves open; results/ppfe.md says why.

    Deviations: the exponent of sample weights is the loss over its maximum (Algorithm 1 has the raw loss) of
    the stage alone (there of the ensemble), its error is clipped, and β below 0 is 0. Fully connected layers
    of reduced stages begin at stage 1's model (``fc_init``), so only convolutions go on. The pass over the
    training data behind each stage, which gives the weights, does not count as samples.
    """

    name = "ppfe"
    title = "PPFE"
    reference = "Federated Ensemble Learning with Progressive Model Personalization, arXiv 2602.14244"
    group = "ensembles"
    publication = (
        "Federated Ensemble Learning with Progressive Model Personalization",
        "Emrani, Ala and Najafi, Amir and Motahari, Abolfazl",
        "arXiv 2602.14244",
        2026,
        "https://arxiv.org/abs/2602.14244",
    )
    pseudocode = (
        "stage s: share the lower layers, reduced; keep the upper ones, more in each stage",
        "train on samples weighted by ω; then raise ω of those that the stage gets wrong",
        "predict with Σ_s β_ks f_ks(x), the weighted ensemble of the stages",
    )
    Hyper = PPFEHyper
    ablations = ABLATIONS
    tuning = (
        {"fc_init": "prev"},
        {"rw_loss": "zero_one"},
        {"rw_target": "ensemble"},
        {"body_rate": (1.0, 0.1, 0.1, 0.1)},
    )

    @classmethod
    def fitted(cls, network: Network, values: Mapping[str, Any]) -> Mapping[str, Any]:
        rounds = values.get("stage_rounds", PPFEHyper.stage_rounds)
        if network.is_recurrent and rounds in TEXT_ROUNDS:
            return {**values, "stage_rounds": TEXT_ROUNDS[rounds]}
        return values

    @classmethod
    def check(cls, config: RunConfig, network: Network, hyper: PPFEHyper) -> None:
        check_switches(hyper, config.everyone_ends)
        check_start(hyper, f"T={hyper.T}", shared=True, personal=hyper.T > 1)
        if config.adapters and hyper.reduction != "none":
            raise UserError(
                f"--adapters {config.adapters}: reduction={hyper.reduction} makes fully connected layers "
                "smaller, of which only parts train; give --set reduction=none, or drop --adapters"
            )
        check_stages(network, config.rounds, hyper)
        REDUCTIONS[hyper.reduction].check(network, hyper)

    def __init__(self, task: RunContext, hyper: PPFEHyper) -> None:
        self.reduction = REDUCTIONS[hyper.reduction](task.network, hyper, task.streams)
        self.stages = plan_stages(task.network, task.rounds, hyper)
        self.networks = {s.number: self.reduction.network(s.number, s.personal) for s in self.stages}
        self.current = self.stages[0]
        super().__init__(task, hyper)
        self.ensemble_space = hyper.ens_space
        self.least_rounds = least_rounds(hyper.stage_rounds[: hyper.T])
        self._fedavg: Params = {}  # θ_F, the model at the end of stage 1
        self._finished: list[tuple[Params, ClientStore]] = []  # ψ and φ of closed stages
        self._closing: ClientStore | None = None  # whole models of a stage's last round (closing_body=own)
        self._records: list[StageRecord] = []
        self.weights = SampleWeights(task, hyper)
        self._new_betas: dict[int, list[float]] = {}  # of clients that took no part in training, by stage

    # -- stages ---------------------------------------------------------------------------------

    def _stage_of(self, round: int) -> Stage:
        return next(stage for stage in self.stages if round <= stage.last)

    def kind(self, round: int) -> RoundKind:
        stage = self._stage_of(round)
        closing = round == stage.last
        full = round == self.task.rounds if self.hyper.full_last_only else closing
        return RoundKind(stage.number, closing, full and self.config.everyone_ends)

    def shared_rounds(self) -> list[SharedRounds]:
        return beginnings(self.hyper, self.stages, self.reduction.earliest)

    def shared_layers(self) -> tuple[str, ...]:
        return tuple(name for name in self.network.names if name not in self.current.personal)

    def _averages(self, stage: Stage) -> bool:
        """Whether clients that are new in a stage begin from others' personal layers."""
        return self.hyper.personal_start == "average" and not self._carries_over(stage)

    @property
    def _averaging(self) -> bool:
        return self._averages(self.current)

    def message(self, clients: Sequence[int], round: int) -> Message:
        # Else personal layers begin from what a client has from the stages before.
        return super().message(clients, round) if self._averaging else Message(self.server)

    def capacities(self) -> list[tuple[int, int]]:
        return [
            (self.networks[s.number].count() - personal, personal)
            for s in self.stages
            for personal in [self.networks[s.number].count(s.personal)]
        ]

    def _carries_over(self, stage: Stage) -> bool:
        """Whether every client begins a stage from its own model of the one before."""
        return stage.number > 2 and self.hyper.fc_init == "prev"

    def start_round(self, round: int) -> None:
        """Build the network of a new stage and its start values (results/ppfe.md, "How stages begin")."""
        stage = self._stage_of(round)
        if stage.number == self.current.number:
            return
        target, dense = self.networks[stage.number], self.task.network
        carried = from_server(stage, dense, self.hyper.fc_init)
        step = Step(self.network, target, stage.personal)
        made = self.reduction.convert(expand(self.server, 1), step, carried)
        if self._carries_over(stage):
            clients = self._inherit(step)
        else:
            rest = [name for name in target.names if name not in carried]
            from_fedavg = replace(step, source=dense)
            made |= self.reduction.convert(expand(self._fedavg, 1), from_fedavg, rest)
            personal = {key: made.pop(key)[0].clone() for key in target.keys(stage.personal)}
            clients = ClientStore(personal, self.task.data.clients)
        server = {key: value[0].clone() for key, value in made.items()}
        self.current, self.network, self.server, self.clients = stage, target, server, clients

    def _inherit(self, step: Step) -> ClientStore:
        """Every client's personal layers from its own model of the previous stage."""
        inherited: ClientStore | None = None
        for chunk in chunks(range(self.task.data.clients)):
            models = self.assemble(chunk, self.server)
            made = self.reduction.convert(models, step, step.personal)
            if inherited is None:
                # Nobody will read these common values: below, all clients get rows.
                common = {key: value[0] for key, value in made.items()}
                inherited = ClientStore(common, self.task.data.clients)
            inherited.scatter(chunk, made)
        assert inherited is not None
        return inherited

    # -- local training -------------------------------------------------------------------------

    def phases(self, round: int) -> list[Phase]:
        stage = self._stage_of(round)
        network, lr = self.networks[stage.number], self.config.lr
        rates = {n: lr if n in stage.personal else lr * stage.body_rate for n in network.names}
        masks = self.reduction.masks(network, stage.personal) if stage.personal else None
        if masks is not None:
            masks = {key: mask.to(self.task.data.device) for key, mask in masks.items()}
        return [Phase(rates, self.local_work, masks=masks, objective=self.weights.objective(stage))]

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call = super().begin(clients, message, round)
        weights = [self.weights.of(client) for client in clients]
        self.weights.give(call, self.current, weights, [self.weights.judged[client] for client in clients])
        return call

    # -- the end of a stage ---------------------------------------------------------------------

    def finish_round(self, round: int) -> None:
        if not self.kind(round).closing:
            return
        if self.current.number == 1:
            self._fedavg = clone(self.server)
        record = StageRecord.empty(self.task.data.clients)
        self._records.append(record)
        self._finished.append((clone(self.server), self._closing or self.clients))
        self._closing = None
        for chunk in chunks(range(self.task.data.clients)):
            models = self._models(self.current.number - 1, chunk)
            for part in ("train", "test"):
                outputs = self.task.executor.forward(self.network, models, chunk, part)
                record.scores[part].extend(output.cpu() for output in outputs)
            for client in chunk:
                self._reweight(client, record)

    def _reweight(self, client: int, record: StageRecord) -> None:
        """Algorithm 1's Reweight for one client; fills its entries of the stage's record."""
        labels = self.task.data.labels(client).cpu()
        weights, judged = self.weights.of(client), self.weights.judged[client]
        scores = [closed.scores["train"][client] for closed in self._records]
        before = [float(closed.betas[client]) for closed in self._records[:-1]]
        result = self.weights.judge(scores, before, labels, weights, judged)
        record.betas[client] = result.beta
        record.measure(client, result, weights if judged is None else weights * judged, labels)
        weights.copy_(result.weights)

    def keep(self, outcome: LocalResult) -> None:
        super().keep(outcome)
        if self.hyper.closing_body == "own" and self.kind(outcome.round).closing:
            if self._closing is None:
                self._closing = ClientStore({**self.server, **self.clients.initial}, self.task.data.clients)
            self._closing.scatter(outcome.clients, outcome.models["model"])

    # -- evaluation -----------------------------------------------------------------------------

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        if len(self._finished) < len(self.stages):
            return super().members(clients)
        if len(self.stages) == 1 or self.hyper.ensemble == "last":
            return [StackedModel(self.network, self._models(len(self.stages) - 1, clients))]
        weights = ensemble_weights([*self._betas(clients).T], self.task.data.device)
        return [
            StackedModel(self.networks[stage.number], self._models(place, clients), weights[:, place])
            for place, stage in enumerate(self.stages)
        ]

    def _models(self, position: int, clients: Sequence[int]) -> Params:
        """The models of a closed stage (from 0) that clients are judged and evaluated with, stacked."""
        shared, store = self._finished[position]
        return {**expand(shared, len(clients)), **store.gather(clients)}

    def _betas(self, clients: Sequence[int]) -> Tensor:
        """β of all stages [m, stages]."""
        found = [
            self._new_betas.get(client) or [float(record.betas[client]) for record in self._records]
            for client in clients
        ]
        return torch.tensor(found, dtype=torch.float64)

    def admit(self, clients: Sequence[int], epochs: int, ledger: Ledger) -> None:
        """Stage by stage: personal layers are trained under the shared ones of the stage's end.

        They begin as those of a client that has not been met in the stage, and are trained with the sample
        weights that the stage before leaves. `epochs` are divided among the stages with personal layers, the
        later ones first. Nothing of it is in the publication.
        """
        weights = {client: torch.ones(self.task.data.train_sizes[client]) for client in clients}
        judged = {client: self.weights.draw_judged(client) for client in clients}
        betas: dict[int, list[float]] = {client: [] for client in clients}
        scores: dict[int, list[Tensor]] = {client: [] for client in clients}
        stages = [stage for stage in self.stages if stage.personal]
        models: Params = {}
        for stage, (shared, store) in zip(self.stages, self._finished, strict=True):
            network, personal = self.networks[stage.number], store.gather(clients)
            if self._carries_over(stage):
                step = Step(self.networks[stage.number - 1], network, stage.personal)
                personal = self.reduction.convert(models, step, step.personal)
            received = {**shared, **store.initial} if self._averages(stage) else shared
            ledger.charge_message(Message(received), len(clients))
            models = {**expand(shared, len(clients)), **personal}
            if stage.personal:
                most = epochs // len(stages) + (stage in stages[len(stages) - epochs % len(stages) :])
                (usual,) = self.phases(stage.last)
                rates = {name: usual.rates[name] for name in stage.personal}
                round = self.task.rounds + stage.number  # each stage has orders of its own
                model, phase = StackedModel(network, models), replace(usual, rates=rates, epochs=most)
                call = LocalCall(round, list(clients), {"model": model}, [phase])
                self.weights.give(call, stage, [*weights.values()], [*judged.values()])
                outcome = self.task.executor.train(call)
                ledger.charge_training(outcome)
                models = outcome.models["model"]
                store.scatter(clients, models)
            outputs = self.task.executor.forward(network, models, clients, "train")
            for client, output in zip(clients, outputs, strict=True):
                scores[client].append(output.cpu())
                labels = self.task.data.labels(client).cpu()
                result = self.weights.judge(
                    scores[client], betas[client], labels, weights[client], judged[client]
                )
                betas[client].append(result.beta)
                weights[client] = result.weights
        self._new_betas.update(betas)

    @property
    def notes(self) -> list[str]:  # type: ignore[override]
        """The plan: rounds, layers and sizes of the stages."""
        masks = self.reduction.masks(self.networks[len(self.stages)], self.stages[-1].personal)
        return describe_plan(self.task.network, self.stages, self.networks, masks)

    @property
    def remedies(self) -> list[str]:
        """What may help in the current stage."""
        return [*super().remedies, *remedies(self.hyper, self.current.number)]

    def diagnostics(self) -> dict[str, Any]:
        labels = {
            part: [self.task.data.labels(k, part).cpu() for k in range(self.task.data.clients)]
            for part in ("train", "test")
        }
        plan = [(s.number, s.first, s.last, list(s.personal)) for s in self.stages]
        return describe(self._records, plan, labels, self.hyper.ens_space)

    # -- resume ---------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {
            **super().state(),
            "stage": self.current.number,
            "fedavg": self._fedavg,
            "weights": self.weights.values,
            "finished": [{"server": shared, "clients": store.state()} for shared, store in self._finished],
            "records": [record.state() for record in self._records],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self.current = self.stages[state["stage"] - 1]
        self.network = self.networks[self.current.number]
        self._fedavg, self.weights.values = dict(state["fedavg"]), state["weights"].cpu()
        self._finished = []
        for closed in state["finished"]:
            store = ClientStore({}, self.task.data.clients)
            store.load(closed["clients"])
            self._finished.append((dict(closed["server"]), store))
        self._records = [StageRecord.load(record) for record in state["records"]]
