"""Another seed is advised where the split's draws failed, and tried nowhere else."""

import pytest

from pfl_benchmark.config.flags import config_from
from pfl_benchmark.errors import Unlucky, UserError
from pfl_benchmark.experiment import prepare


@pytest.mark.parametrize(
    ("error", "works", "tried", "said"),
    [
        (UserError("too many clients"), (), 1, "too many clients"),
        (Unlucky("drawn badly"), (), 4, "drawn badly"),
        (Unlucky("drawn badly"), (2,), 3, "drawn badly; another seed may do, such as --seed 2"),
    ],
)
def test_seeds_that_are_tried(error, works, tried, said, monkeypatch):
    seeds = []

    def split(config, dataset):
        seeds.append(config.seed)
        if config.seed not in works:
            raise error

    monkeypatch.setattr(prepare, "_split", split)
    with pytest.raises(UserError) as raised:
        prepare.split_of(config_from({"dataset": "digits"})[1], None)
    assert str(raised.value) == said
    assert len(seeds) == tried
