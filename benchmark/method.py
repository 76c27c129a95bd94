"""Everything that a method's file imports: the base class, local training, messages, tensors, options.

    from pfl_benchmark.method import Algorithm, Phase, option, register

The methods in `algorithms/` use nothing else of this package.
"""

from __future__ import annotations

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.algorithm import (
    Algorithm,
    NoHyper,
    RoundKind,
    RunContext,
    SharedRounds,
    take_part,
)
from pfl_benchmark.engine.clients import ClientStore, chunks
from pfl_benchmark.engine.data import Part
from pfl_benchmark.engine.ensemble import SPACES, as_logits, summand
from pfl_benchmark.engine.hyper import Between, option
from pfl_benchmark.engine.ledger import Ledger
from pfl_benchmark.engine.local import LocalCall, LocalResult, Phase, StackedModel
from pfl_benchmark.engine.message import Aggregator, Gathered, Message, WeightedMean
from pfl_benchmark.engine.params import (
    add_prefix,
    along,
    clone,
    exact,
    expand,
    finest,
    row,
    select,
    squared_distance,
    strip_prefix,
)
from pfl_benchmark.engine.registry import register
from pfl_benchmark.engine.step import Objective, Rule, Step
from pfl_benchmark.engine.streams import Streams
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import BatchNorm, Conv, Conv1d, Layer, Linear, LowRank, Network, Params
from pfl_benchmark.models.frozen import low_rank_updates, with_second_lora

__all__ = [
    "SPACES",
    "Aggregator",
    "Algorithm",
    "BatchNorm",
    "Between",
    "ClientStore",
    "Conv",
    "Conv1d",
    "Gathered",
    "Layer",
    "Ledger",
    "Linear",
    "LocalCall",
    "LocalResult",
    "LowRank",
    "Message",
    "Network",
    "NoHyper",
    "Objective",
    "Params",
    "Part",
    "Phase",
    "RoundKind",
    "Rule",
    "RunConfig",
    "RunContext",
    "SharedRounds",
    "StackedModel",
    "Step",
    "Streams",
    "UserError",
    "WeightedMean",
    "add_prefix",
    "along",
    "as_logits",
    "chunks",
    "clone",
    "exact",
    "expand",
    "finest",
    "low_rank_updates",
    "option",
    "register",
    "row",
    "select",
    "squared_distance",
    "strip_prefix",
    "summand",
    "take_part",
    "with_second_lora",
]
