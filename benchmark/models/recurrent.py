"""The recurrent layer of text nets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.models.layers import DropoutSource, Layer

CELLS = {"lstm": 4, "gru": 3}  # kinds of recurrent cells, and their gates


@dataclass(frozen=True)
class Recurrent(Layer):
    """One recurrent layer; its output [B, outputs] is the state after the last valid step.

    With `whole` the output holds the states after all steps, in the form of the input [B, T, outputs + 1].

    Its input [B, T, inputs + 1] holds a sequence of vectors and, in the last channel, 1 for valid steps and 0
    for those behind the end. An empty sequence leaves the state 0. Names, gate order, the two biases and the
    initial partitioner are those of torch.nn.LSTM and torch.nn.GRU.
    """

    inputs: int
    outputs: int
    cell: str = "lstm"
    whole: bool = False

    def shapes(self) -> dict[str, tuple[int, ...]]:
        rows = CELLS[self.cell] * self.outputs
        return {
            f"{self.name}.weight_ih": (rows, self.inputs),
            f"{self.name}.weight_hh": (rows, self.outputs),
            f"{self.name}.bias_ih": (rows,),
            f"{self.name}.bias_hh": (rows,),
        }

    @property
    def fan_in(self) -> int:
        return self.outputs

    def apply(self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None) -> Tensor:
        # PyTorch's own loop over the steps: on CPUs a quarter of the time of one written here.
        tensors = [params[key] for key in self.shapes()]
        words, start = x[..., :-1], x.new_zeros(1, len(x), self.outputs)
        learns = x.device.type != "cpu" and torch.is_grad_enabled()  # cuDNN keeps what its backward needs
        if self.cell == "lstm":
            states = torch.lstm(words, (start, start), tensors, True, 1, 0.0, learns, False, True)[0]
        else:
            states = torch.gru(words, start, tensors, True, 1, 0.0, learns, False, True)[0]
        return self._output(states, x)

    def apply_stacked(
        self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None
    ) -> Tensor:
        # Every step is computed for every sequence, so that shapes do not depend on the data; states behind
        # the end are finite and weigh nothing.
        weight_ih, weight_hh, bias_ih, bias_hh = (params[key] for key in self.shapes())
        models, batch, steps = x.shape[:3]
        words = x[..., :-1].reshape(models, batch * steps, self.inputs)
        gates = torch.baddbmm(bias_ih.unsqueeze(1), words, weight_ih.transpose(1, 2))
        bias, weight = bias_hh.unsqueeze(1), weight_hh.transpose(1, 2)
        state = memory = x.new_zeros(models, batch, self.outputs)
        states = []
        for own in gates.view(models, batch, steps, -1).unbind(2):
            recurrent = torch.baddbmm(bias, state, weight)
            if self.cell == "lstm":
                state, memory = _lstm_step(own + recurrent, memory)
            else:
                state = _gru_step(own, recurrent, state)
            states.append(state)
        return self._output(torch.stack(states, 2), x)

    def _output(self, states: Tensor, x: Tensor) -> Tensor:
        return torch.cat([states, x[..., -1:]], -1) if self.whole else (states * _last_step(x)).sum(-2)


def _last_step(x: Tensor) -> Tensor:
    """1 at the last valid step of every sequence, 0 elsewhere [..., T, 1]."""
    valid = x[..., -1:]
    return valid - F.pad(valid[..., 1:, :], (0, 0, 0, 1))


def _lstm_step(gates: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """State and memory [..., H] after one step, from the gates [..., 4 H] before their activation."""
    take, keep, new, show = gates.chunk(4, -1)
    memory = keep.sigmoid() * memory + take.sigmoid() * new.tanh()
    return show.sigmoid() * memory.tanh(), memory


def _gru_step(own: Tensor, recurrent: Tensor, state: Tensor) -> Tensor:
    """State [..., H] after one step, from what input and state add to the gates [..., 3 H]."""
    reset, keep, new = own.chunk(3, -1)
    of_reset, of_keep, of_new = recurrent.chunk(3, -1)
    keep = (keep + of_keep).sigmoid()
    new = (new + (reset + of_reset).sigmoid() * of_new).tanh()
    return new + keep * (state - new)
