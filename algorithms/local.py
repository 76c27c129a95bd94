"""Local only: every client trains by itself."""

from __future__ import annotations

from dataclasses import dataclass

from pfl_benchmark.method import Algorithm, Network, Phase, RunConfig, UserError, option, register


@dataclass(frozen=True)
class LocalHyper:
    """Hyper-parameters of local training."""

    total_epochs: int = option(
        0,
        "0: train whenever the common schedule selects the client; else that many epochs at once, at the end",
        least=0,
    )


@register
class Local(Algorithm):
    """No communication: every layer is personal.

    Source: no publication; pFedFDA servers/server_local.py, PFLlib flcore/servers/serverlocal.py and FedRep
    main_local.py. By default clients train when the common schedule selects them, which gives every method
    the same compute, as in the first two.

    Defaults: those of the common protocol. FedRep trains all clients for a number of epochs instead: ``--set
    total_epochs=160``.

    Deviations: the final model counts, not the best epoch on test data.

    Traps: the official codes of LG-FedAvg and FedBABU report the epoch of each client that is best on test
    data.
    """

    name = "local"
    title = "Local Only"
    reference = "pFedFDA servers/server_local.py; FedRep main_local.py"
    group = "decoupled"
    pseudocode = (
        "nothing is sent",
        "v_k ← SGD(v_k) on client k",
        "evaluate v_k",
    )
    aliases = ("standalone",)
    Hyper = LocalHyper
    tuning = ({"total_epochs": 160},)

    def shared_layers(self) -> tuple[str, ...]:
        return ()

    @classmethod
    def check(cls, config: RunConfig, network: Network, hyper: LocalHyper) -> None:
        if hyper.total_epochs and not config.everyone_ends:
            raise UserError(
                f"total_epochs={hyper.total_epochs} trains everyone in the last round, and --last-round is "
                "cohort; drop one of the two"
            )
        changed = [
            f"--{name.replace('_', '-')}"
            for name in ("local_steps", "lr_schedule")
            if getattr(config, name) != getattr(RunConfig, name)
        ]
        if hyper.total_epochs and changed:
            raise UserError(
                f"total_epochs={hyper.total_epochs} trains so many epochs in the last round alone, where "
                f"{changed[0]} means nothing; drop one of the two"
            )

    def phases(self, round: int) -> list[Phase]:
        if not self.hyper.total_epochs:
            return super().phases(round)
        if round < self.task.rounds:
            return []
        return [Phase.of(self.network.names, self.config.lr, self.hyper.total_epochs)]
