"""Linear probing with outputs of the frozen layers kept, computed once a participation, or in every step.

    python -m pfl_benchmark.speed.frozen --network resnet18-gn --turns 3

Rounds of FedAvg with `--adapters head` on random CIFAR-10 images, by the executor `loop` on one core. The
three take turns; what is printed are medians of a turn, which begins with the preparation, and quotients.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from unittest.mock import patch

import torch

from pfl_benchmark.engine import features, sgd
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.speed.work import ready

KEPT, ONCE, STEP = "outputs kept", "once a participation", "in every step"


def turn(network: str, clients: int, samples: int, rounds: int) -> float:
    """Seconds of a run: preparation and rounds in which all clients take part."""
    started = time.perf_counter()
    prepared = ready(
        "cifar10", "loop", Execution(device="cpu"), network=network, adapters="head", clients=clients,
        participation=1.0, samples_per_client=samples, test_samples_per_client=4,
    )  # fmt: skip
    algorithm, everyone = prepared.make(rounds), list(range(clients))
    for number in range(1, rounds + 1):
        algorithm.start_round(number)
        call = algorithm.begin(everyone, algorithm.message(everyone, number), number)
        algorithm.keep(prepared.task.executor.train(call))
    prepared.task.executor.close()
    return time.perf_counter() - started


def ways(work: Callable[[], float]) -> dict[str, float]:
    """Seconds of one turn each."""
    found = {KEPT: work()}
    with patch.object(features, "MOST", 0):
        found[ONCE] = work()
        with patch.object(sgd, "first_layer", lambda *_: 0):
            found[STEP] = work()
    return found


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="resnet18-gn")
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--samples", type=int, default=30, help="training samples of a client")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    if min(asked.turns, asked.rounds) < 1:
        parser.error("--turns and --rounds: expected at least 1 of each")
    torch.set_num_threads(1)
    try:
        turns = [
            ways(lambda: turn(asked.network, asked.clients, asked.samples, asked.rounds))
            for _ in range(asked.turns)
        ]
    except UserError as error:
        parser.error(str(error))
    for name in (STEP, ONCE, KEPT):
        quotients = [each[STEP] / each[name] for each in turns]
        seconds = statistics.median(each[name] for each in turns)
        print(
            f"{name}: {seconds:.2f} s, {statistics.median(quotients):.1f} times as fast as {STEP} "
            f"({min(quotients):.1f} to {max(quotients):.1f})"
        )


if __name__ == "__main__":
    main()
