"""What the paper does not say, one switch at a time: causes of differences from it.

A look at test accuracy, so nothing is chosen here; hyper-parameters are chosen by the study `tuning`.
"""

from __future__ import annotations

from benchmark.studies.columns import DISTINCT, PLAIN, under
from benchmark.studies.grid import Grid, Study, Variant

__all__ = ["SWITCHES"]

_ROWS = (
    Variant("Local Only", "local"),
    Variant("Local Only, 160 epochs", "local", paper="Local Only", hyper={"total_epochs": 160}),
    Variant("FedAvg", "fedavg"),
    Variant("FedAvg+FT", "fedavg-ft"),
    Variant("FedAvg+FT, 1 epoch", "fedavg-ft", paper="FedAvg+FT", hyper={"ft_epochs": 1}),
    Variant("FedAvg+FT, 10 epochs", "fedavg-ft", paper="FedAvg+FT", hyper={"ft_epochs": 10}),
    Variant("FedAvg+FT, 5 epochs of the head", "fedavg-ft", paper="FedAvg+FT", hyper={"ft_part": "head"}),
    Variant(
        "FedAvg+FT, 10 epochs of the head",
        "fedavg-ft",
        paper="FedAvg+FT",
        hyper={"ft_part": "head", "ft_epochs": 10},
    ),
    Variant("FedBABU", "fedbabu"),
    Variant("FedBABU, 10 epochs", "fedbabu", paper="FedBABU", hyper={"ft_epochs": 10}),
    Variant("FedBABU, 5 epochs of the head", "fedbabu", paper="FedBABU", hyper={"ft_part": "head"}),
    Variant(
        "FedBABU, 10 epochs of the head",
        "fedbabu",
        paper="FedBABU",
        hyper={"ft_part": "head", "ft_epochs": 10},
    ),
    Variant("FedRep", "fedrep"),
    Variant("FedRep, 10 head epochs", "fedrep", paper="FedRep", hyper={"head_epochs": 10}),
    Variant("FedRep, last round frozen", "fedrep", paper="FedRep", hyper={"final_round": "frozen"}),
    Variant("FedPer", "fedper"),
    Variant("FedPer, last round frozen", "fedper", paper="FedPer", hyper={"final_round": "frozen"}),
    Variant("FedPer, then 5 epochs of all", "fedper", paper="FedPer", hyper={"ft_epochs": 5}),
    Variant("LG-FedAvg", "lg-fedavg"),
    Variant("LG-FedAvg after 30 rounds of FedAvg", "lg-fedavg", paper="LG-FedAvg", hyper={"lg_warm": 30}),
    Variant("PPFE", "ppfe"),
    Variant("PPFE, dense layers from FedAvg", "ppfe", paper="PPFE", hyper={"fc_init": "fedavg"}),
    Variant("PPFE, body at the full rate", "ppfe", paper="PPFE", hyper={"body_rate": (1.0,) * 4}),
    Variant("PPFE, β on samples held out", "ppfe", paper="PPFE", hyper={"beta_data": "holdout20"}),
)

SWITCHES = Study(
    "switches",
    "What the paper leaves open, switch by switch",
    {"paper": Grid(_ROWS, (*under("shards", "flips"), *PLAIN, *DISTINCT))},
    tables=("accuracy", "significance", "stages"),
    paper="main",
    on_request=True,
)
