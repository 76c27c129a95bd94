"""PPFE: the method as hooks of the common round loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from pfl_benchmark.algorithms.decoupled import Decoupled, check_start
from pfl_benchmark.algorithms.ppfe.diagnostics import StageRecord, describe
from pfl_benchmark.algorithms.ppfe.ensemble import ensemble_weights, weighted_scores
from pfl_benchmark.algorithms.ppfe.hyper import ABLATIONS, RESHAPING, TEXT_ROUNDS, PPFEHyper
from pfl_benchmark.algorithms.ppfe.reduction import FIRST_REDUCED_STAGE, REDUCTIONS, Step
from pfl_benchmark.algorithms.ppfe.reweight import Reweighted, reweight
from pfl_benchmark.algorithms.ppfe.stages import Stage, check_stages, describe_plan, least_rounds, plan_stages
from pfl_benchmark.method import (
    ClientStore,
    Ledger,
    LocalCall,
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
    as_logits,
    chunks,
    clone,
    expand,
    register,
)

__all__ = ["PPFE"]

# Hyper-parameters that stages 1 and 2 do not depend on beyond their plan (`Stage`),
LATER = ("T", "stage_rounds", "body_rate", "heads", "fc_init", "ensemble")
# and those that they do not depend on if reduction comes later.
REDUCING = ("reduction", "ranks", "factor_policy", "mask_rates", "width_alpha")
HOLDOUT = 0.2  # share of a client's training samples under ``beta_data=holdout20``


@register
class PPFE(Decoupled):
    """Stages of growing personalization, each started from the one before, boosted into an ensemble.

    Stage 1 is FedAvg. Stage t makes the last t − 1 layers personal, shrinks the fully connected layers from
    stage 3 on, and trains with sample weights that grow where the previous stage did badly. The final model
    of a client is the β-weighted sum of its stage models. Evaluations on the way are of the stage model being
    trained; the last one is of the ensemble.

    Source: paper, section 4, Algorithm 1 and appendix; no official code is public.

    Defaults: those of `PPFEHyper`, readings of what the paper leaves open; results/ppfe.md says why.

    Deviations: none known, as far as the paper says what it does.
    """

    name = "ppfe"
    title = "PPFE"
    reference = "Federated Ensemble Learning with Progressive Model Personalization, arXiv 2602.14244"
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
        if hyper.rw_sign not in (1, -1):
            raise UserError(f"rw_sign={hyper.rw_sign}: expected 1 (Algorithm 1) or -1 (the text)")
        if hyper.fc_init != "prev" and hyper.reduction not in RESHAPING:
            raise UserError(
                f"fc_init={hyper.fc_init}: reduction={hyper.reduction} leaves the shapes of layers as they "
                "are, so that all go on from the previous stage; leave fc_init out, or give reduction=svd"
            )
        if hyper.fc_init != "prev" and hyper.T < FIRST_REDUCED_STAGE:
            raise UserError(f"fc_init={hyper.fc_init}: T={hyper.T} has no reduced stage; leave fc_init out")
        if hyper.rw_apply != "loss" and (hyper.T == 1 or not hyper.reweight):
            reason = "reweight=false" if hyper.T > 1 else "T=1"
            raise UserError(
                f"rw_apply={hyper.rw_apply}: {reason} has no sample weights to apply; leave one out"
            )
        if hyper.ens_space != "logit" and hyper.ensemble == "last" and hyper.rw_target == "single":
            raise UserError(
                f"ens_space={hyper.ens_space}: ensemble=last leaves nothing to sum; leave one of them out"
            )
        if hyper.personal_start == "average" and hyper.full_last_only:
            raise UserError(
                "personal_start=average: full_last_only=true ends stages with clients that have not met a "
                "mean; leave one out"
            )
        check_start(hyper, f"T={hyper.T}", shared=True, personal=hyper.T > 1)
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
        self._records: list[StageRecord] = []
        sizes = task.data.train_sizes
        self._weights = torch.ones(sum(sizes))  # ω of all clients, one after the other
        self._bounds = [0, *torch.tensor(sizes).cumsum(0).tolist()]
        self._judged = [self._draw_judged(client) for client in range(task.data.clients)]
        self._new_betas: dict[int, list[float]] = {}  # of clients that took no part in training, by stage

    # -- stages ---------------------------------------------------------------------------------

    def _stage_of(self, round: int) -> Stage:
        return next(stage for stage in self.stages if round <= stage.last)

    def kind(self, round: int) -> RoundKind:
        stage = self._stage_of(round)
        closing = round == stage.last
        full = round == self.task.rounds if self.hyper.full_last_only else closing
        return RoundKind(stage.number, closing, full)

    def shared_rounds(self) -> list[SharedRounds]:
        first, hyper = self.stages[0], self.hyper
        # Otherwise stage 1 is no run of FedAvg on all training data.
        plain = first.body_rate == 1 and hyper.beta_data == "train" and not hyper.full_last_only
        found = [SharedRounds("fedavg", first.last)] if plain else []
        if len(self.stages) > 2:
            found.append(SharedRounds(self._two_stages(), self.stages[1].last, whole=True))
        return found

    def _two_stages(self) -> str:
        """Names all of the method that stages 1 and 2 depend on: many variants differ from stage 3 on."""
        free = (*LATER, *REDUCING) if self.reduction.earliest > 2 else LATER
        if self.hyper.rw_target == "single":  # sample weights do not depend on the ensemble
            free = (*free, "ens_space")
        hyper = {name: value for name, value in asdict(self.hyper).items() if name not in free}
        return f"ppfe {self.stages[:2]} {hyper}"

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

    def start_round(self, round: int) -> None:
        stage = self._stage_of(round)
        if stage.number != self.current.number:
            self._enter(stage)

    def _carries_over(self, stage: Stage) -> bool:
        """Whether every client begins a stage from its own model of the one before."""
        return stage.number > 2 and self.hyper.fc_init == "prev"

    def _from_server(self, stage: Stage) -> tuple[str, ...]:
        """Layers that begin a stage as the server's of the one before; the rest is θ_F's or the clients'."""
        dense, reading = self.task.network, self.hyper.fc_init
        never_reduced = tuple(name for name in dense.names if name not in dense.splittable)
        if stage.number == 2 or reading == "fedavg_all":
            return ()
        if reading == "fedavg" or (reading == "fedavg_chain" and stage.number > FIRST_REDUCED_STAGE):
            return never_reduced
        if reading == "fedavg_chain":
            return ()
        return tuple(name for name in dense.names if name not in stage.personal)

    def _enter(self, stage: Stage) -> None:
        """Build the network of a stage and its start values (results/ppfe.md, "How stages begin")."""
        target, carried = self.networks[stage.number], self._from_server(stage)
        step = Step(self.network, target, stage.personal)
        made = self.reduction.convert(expand(self.server, 1), step, carried)
        if self._carries_over(stage):
            clients = self._inherit(step)
        else:
            rest = [name for name in target.names if name not in carried]
            from_fedavg = replace(step, source=self.task.network)
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
        return [Phase(rates, self.config.local_epochs, masks=masks)]

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call = super().begin(clients, message, round)
        weights = [self._heard(self._own(client), self._judged[client]) for client in clients]
        self._weigh(call, weights, self.current)
        return call

    def _weigh(self, call: LocalCall, weights: list[Tensor], stage: Stage) -> None:
        """Give a call its clients' sample weights, where there are any."""
        reweighted = self.hyper.reweight and stage.number > 1
        if not reweighted and self.hyper.beta_data == "train":
            return
        if self.hyper.rw_apply == "resample" and reweighted:
            call.chances = weights
        else:
            call.sample_weights = [own.to(self.task.data.device) for own in weights]

    def _draw_judged(self, client: int) -> Tensor | None:
        """The samples of a client that β is measured on and nothing is trained on, boolean [n], if any.

        A client with a single sample trains on it.
        """
        if self.hyper.beta_data == "train":
            return None
        count = self.task.data.train_sizes[client]
        chosen = self.task.streams.get("holdout", client=client).permutation(count)
        judged = torch.zeros(count, dtype=torch.bool)
        judged[chosen[: min(max(1, round(HOLDOUT * count)), count - 1)]] = True
        return judged if judged.any() else None

    @staticmethod
    def _heard(weights: Tensor, judged: Tensor | None) -> Tensor:
        """Weights ω of a local call [n], mean 1 over all of the client's samples."""
        if judged is None:
            return weights
        weights = weights * ~judged
        return weights * (len(weights) / weights.sum())

    def _own(self, client: int) -> Tensor:
        """A client's part of the sample weights (a view)."""
        return self._weights[self._bounds[client] : self._bounds[client + 1]]

    # -- the end of a stage ---------------------------------------------------------------------

    def finish_round(self, round: int) -> None:
        if not self.kind(round).closing:
            return
        if self.current.number == 1:
            self._fedavg = clone(self.server)
        record = StageRecord.empty(self.task.data.clients)
        self._records.append(record)
        self._finished.append((clone(self.server), self.clients))
        for chunk in chunks(range(self.task.data.clients)):
            models = self.assemble(chunk, self.server)
            for part in ("train", "test"):
                outputs = self.task.executor.forward(self.network, models, chunk, part)
                record.scores[part].extend(output.cpu() for output in outputs)
            for client in chunk:
                self._reweight(client, record)

    def _reweight(self, client: int, record: StageRecord) -> None:
        """Algorithm 1's Reweight for one client; fills its entries of the stage's record."""
        labels = self.task.data.labels(client).cpu()
        weights, judged = self._own(client), self._judged[client]
        scores = [closed.scores["train"][client] for closed in self._records]
        before = [float(closed.betas[client]) for closed in self._records[:-1]]
        result = self._judge(scores, before, labels, weights, judged)
        record.betas[client] = result.beta
        record.measure(client, result, weights if judged is None else weights * judged, labels)
        weights.copy_(result.weights)

    def _judge(
        self,
        scores: Sequence[Tensor],
        before: Sequence[float],
        labels: Tensor,
        weights: Tensor,
        judged: Tensor | None,
    ) -> Reweighted:
        """Reweight after a stage, from a client's scores [n, C] in all closed ones and earlier β."""
        classes, space = self.task.data.classes, self.hyper.ens_space
        result = reweight(scores[-1], labels, weights, classes, self.hyper, judged)
        if self.hyper.rw_target == "ensemble":
            # β of this stage is part of the ensemble that sets it: the stage's own value is provisional.
            betas = [torch.tensor([beta], dtype=torch.float64) for beta in (*before, result.beta)]
            together = weighted_scores(scores, ensemble_weights(betas)[0], space)
            result = reweight(as_logits(together, space), labels, weights, classes, self.hyper, judged)
        return result if self.hyper.reweight else replace(result, weights=weights)

    # -- evaluation -----------------------------------------------------------------------------

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        single = len(self.stages) == 1 or self.hyper.ensemble == "last"
        if single or len(self._finished) < len(self.stages):
            return super().members(clients)
        weights = ensemble_weights([*self._betas(clients).T]).to(self.task.data.device)
        members = []
        for position, stage in enumerate(self.stages):
            shared, store = self._finished[position]
            params = {**expand(shared, len(clients)), **store.gather(clients)}
            members.append(StackedModel(self.networks[stage.number], params, weights[:, position]))
        return members

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
        judged = {client: self._draw_judged(client) for client in clients}
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
                call = self._new_call(stage, clients, models, most)
                self._weigh(call, [self._heard(weights[k], judged[k]) for k in clients], stage)
                outcome = self.task.executor.train(call)
                ledger.charge_training(outcome)
                models = outcome.models["model"]
                store.scatter(clients, models)
            outputs = self.task.executor.forward(network, models, clients, "train")
            for client, output in zip(clients, outputs, strict=True):
                scores[client].append(output.cpu())
                labels = self.task.data.labels(client).cpu()
                result = self._judge(scores[client], betas[client], labels, weights[client], judged[client])
                betas[client].append(result.beta)
                weights[client] = result.weights
        self._new_betas.update(betas)

    def _new_call(self, stage: Stage, clients: Sequence[int], models: Params, epochs: int) -> LocalCall:
        """The training of new clients in a stage."""
        (usual,) = self.phases(stage.last)
        rates = {name: usual.rates[name] for name in stage.personal}
        model = StackedModel(self.networks[stage.number], models)
        round = self.task.rounds + stage.number  # each stage has orders of its own
        return LocalCall(round, list(clients), {"model": model}, [replace(usual, rates=rates, epochs=epochs)])

    @property
    def notes(self) -> list[str]:  # type: ignore[override]
        """The plan: rounds, layers and sizes of the stages."""
        masks = self.reduction.masks(self.networks[len(self.stages)], self.stages[-1].personal)
        return describe_plan(self.task.network, self.stages, self.networks, masks)

    @property
    def remedies(self) -> list[str]:  # type: ignore[override]
        """What may help in the current stage."""
        found = [*super().remedies]
        if self.hyper.reweight and self.hyper.rw_apply == "loss" and self.current.number > 1:
            found.append("--set reweight=false")
        if self.current.number >= FIRST_REDUCED_STAGE and self.hyper.reduction in RESHAPING:
            found += [] if self.hyper.fc_init != "prev" else ["--set fc_init=fedavg"]
        return found

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
            "weights": self._weights,
            "finished": [{"server": shared, "clients": store.state()} for shared, store in self._finished],
            "records": [record.state() for record in self._records],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self.current = self.stages[state["stage"] - 1]
        self.network = self.networks[self.current.number]
        self._fedavg, self._weights = dict(state["fedavg"]), state["weights"].cpu()
        self._finished = []
        for closed in state["finished"]:
            store = ClientStore({}, self.task.data.clients)
            store.load(closed["clients"])
            self._finished.append((dict(closed["server"]), store))
        self._records = [StageRecord.load(record) for record in state["records"]]
