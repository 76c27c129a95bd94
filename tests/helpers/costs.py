"""What a round costs by the plan."""

from functools import lru_cache

from pfl_benchmark.engine.dry import Costs


@lru_cache(maxsize=8)
def costs_of(algorithm):
    """The costs of a participation by round."""
    return dict(Costs().of(algorithm))


def cost_of(algorithm, round):
    """The cost of a participation in a round."""
    return costs_of(algorithm)[round]
