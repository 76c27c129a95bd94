"""Cards of methods."""

import inspect

import pytest

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.experiment.card import card_of, read_docstring
from pfl_benchmark.present.cards import markdown


def test_every_method_names_its_source(algo):
    summary, parts = read_docstring(ALGORITHMS[algo])
    assert summary.endswith(".")
    assert parts["Source"]


def test_a_docstring_is_read_by_the_words_that_begin_its_paragraphs():
    class Example(Algorithm):
        """One sentence
        on two lines.

        Something more: with a colon.

        Source: A et al.

        Traps: the first
        one.

        Traps: the second.
        """

    assert read_docstring(Example) == (
        "One sentence on two lines.",
        {
            "More": "Something more: with a colon.",
            "Source": "A et al.",
            "Traps": "the first one. the second.",
        },
    )


@pytest.mark.parametrize(
    ("name", "down", "kept", "evaluated", "costs"),
    [
        ("fedavg", "all layers", "nothing", "the global model", (1, 1)),
        # 169 * 10 * 5 epochs of training, 100 * 5 of fine-tuning
        ("fedavg-ft", "all layers", "nothing", "each client's own model, adapted to its data", (1, 1.059)),
        ("local", "nothing", "all layers", "each client's own model", (0, 1)),
    ],
)
def test_cards(name, down, kept, evaluated, costs):
    card = card_of(ALGORITHMS[name])
    assert card.flow["sent to clients"] == card.flow["sent to the server"] == down
    assert card.flow["kept by clients"] == kept
    assert card.flow["evaluated"] == evaluated
    assert list(card.costs) == ["bytes", "samples"]
    assert tuple(card.costs.values()) == pytest.approx(costs, abs=1e-3)


def test_the_card_of_a_staged_method():
    method = ALGORITHMS["ppfe"]
    text = markdown(method, card_of(method))
    assert "\n* sent to the server: stage 1: all layers; stage 2: conv1, conv2, fc1, fc2; stage 3: " in text
    assert "\n* evaluated: an ensemble of 4 models\n" in text
    assert "\n* `stage_rounds=30,50,40,40`: rounds of the stages" in text
    assert "\n* `no-reduction`: reduction=none\n" in text
    assert inspect.getdoc(method).splitlines()[0] in text


def test_a_card_that_cannot_be_made_names_the_method(monkeypatch):
    def upload(self, outcome):
        raise KeyError("conv9")

    method = ALGORITHMS["fedavg"]
    monkeypatch.setattr(method, "upload", upload)
    with pytest.raises(KeyError) as caught:
        card_of(method)
    assert caught.value.__notes__ == ["in the short run for the card of 'fedavg'"]
