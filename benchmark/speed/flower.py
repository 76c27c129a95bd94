"""Rounds of FedAvg here and in Flower's simulation: the same network, data, cohort, batches and cores.

    pip install "flwr[simulation]"
    python -m pfl_benchmark.speed.flower --clients 100 1000

Both train the CIFAR-10 network of the paper on random images, on CPUs: 10 clients a round, one epoch each.
The first rounds are not timed. Flower's clients draw their images in every round, 3 ms each.
What is printed are medians of a round and their quotient: quote the quotient.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import logging
import os
import statistics
import time
from typing import Any

import numpy as np
import torch

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.executors.threads import available_cores
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.models import Network
from pfl_benchmark.speed.plain import plain_network
from pfl_benchmark.speed.work import Work, ready, timed

COHORT, SKIPPED = 10, 2


def here(clients: int, samples: int, rounds: int) -> list[float]:
    """Seconds of a round here."""
    work = Work("cifar10", "threads", Execution(device="cpu"), epochs=1, clients=clients, samples=samples)
    turns = timed(work)
    return [next(turns).seconds for _ in range(SKIPPED + rounds)][SKIPPED:]


def images(client: int, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A client's random images and labels."""
    rng = np.random.default_rng(client)
    x = torch.from_numpy(rng.standard_normal((samples, 3, 32, 32), dtype=np.float32))
    return x, torch.from_numpy(rng.integers(0, 10, samples))


def flower(clients: int, samples: int, rounds: int, network: Network, config: RunConfig) -> list[float]:
    """Seconds of a round in Flower's simulation, with a process for each core."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client_app = ClientApp()
    seconds: list[float] = []

    @client_app.train()
    def train(message: Any, context: Any) -> Any:
        torch.set_num_threads(1)
        x, y = images(int(context.node_config["partition-id"]), samples)
        model = plain_network(network)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=config.momentum)
        for batch in torch.randperm(samples).split(config.batch_size):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
        found = {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": samples}),
        }
        return Message(content=RecordDict(found), reply_to=message)

    class Timed(FedAvg):
        def configure_train(self, *of: Any) -> Any:
            self.started = time.perf_counter()
            return super().configure_train(*of)

        def aggregate_train(self, number: int, replies: Any) -> Any:
            replies = list(replies)
            assert not any(reply.has_error() for reply in replies), "a client has failed"
            found = super().aggregate_train(number, replies)
            seconds.append(time.perf_counter() - self.started)
            return found

    server_app = ServerApp()

    @server_app.main()
    def main(grid: Any, context: Any) -> None:
        strategy = Timed(
            fraction_train=COHORT / clients, fraction_evaluate=0.0, min_train_nodes=COHORT,
            min_available_nodes=clients,
        )  # fmt: skip
        arrays = ArrayRecord(plain_network(network).state_dict())
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=SKIPPED + rounds)

    resources = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": available_cores()},
    }
    with contextlib.redirect_stdout(io.StringIO()):
        run_simulation(server_app, client_app, clients, backend_config=resources)
    return seconds[SKIPPED:]


def main() -> None:
    """Print a line for each number of clients."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[100])
    parser.add_argument("--samples", type=int, default=100, help="training samples of a client")
    parser.add_argument("--rounds", type=int, default=10)
    asked = parser.parse_args()
    if min(asked.clients) < COHORT:
        parser.error(f"--clients {min(asked.clients)}: expected at least {COHORT}, the cohort of a round")
    if importlib.util.find_spec("flwr") is None:
        parser.error('Flower is not installed; pip install "flwr[simulation]"')
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    logging.getLogger("flwr").setLevel(logging.ERROR)
    prepared = ready("cifar10", "loop", Execution(device="cpu"))
    for clients in asked.clients:
        ours = statistics.median(here(clients, asked.samples, asked.rounds))
        theirs = statistics.median(
            flower(clients, asked.samples, asked.rounds, prepared.task.network, prepared.config)
        )
        times = f"{ours:.3f} s here, {theirs:.3f} s there, {theirs / ours:.1f} times"
        print(f"{COHORT} of {clients} clients: {times}")


if __name__ == "__main__":
    main()
