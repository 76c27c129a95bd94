"""torchvision's VisionTransformer in a size for small images."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pfl_benchmark.datasets.vision import import_torchvision
from pfl_benchmark.errors import UserError
from pfl_benchmark.models.module import network_from_module
from pfl_benchmark.models.network import Network
from pfl_benchmark.models.registry import Shape, register_network

PATCH, WIDTH, DEPTH, HEADS = 4, 192, 6, 3
SPLITS = ("patches", *(f"block{number}" for number in range(1, DEPTH + 1)), "fc")


class Patches(nn.Module):
    """Patches as tokens, a class token before them, positions added: [B, C, H, W] to [B, T, width]."""

    def __init__(self, projection: nn.Module, token: nn.Parameter, positions: nn.Parameter) -> None:
        super().__init__()
        self.projection, self.token, self.positions = projection, token, positions

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.projection(x).flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(len(x), -1, -1), tokens], 1) + self.positions


class Attention(nn.MultiheadAttention):
    """Self-attention in plain operations: the fused ones of CPUs have no form for several models at once."""

    @staticmethod
    def of(other: nn.MultiheadAttention) -> Attention:
        """With the parameters of another one."""
        found = Attention(other.embed_dim, other.num_heads, batch_first=True, device="meta")
        found.load_state_dict(other.state_dict(), assign=True)
        return found

    def forward(self, x: Tensor, *_: Tensor, need_weights: bool = False) -> tuple[Tensor, None]:  # type: ignore[override]
        heads = F.linear(x, self.in_proj_weight, self.in_proj_bias).unflatten(-1, (3, self.num_heads, -1))
        queries, keys, values = heads.permute(2, 0, 3, 1, 4)  # each [B, heads, T, width of a head]
        chances = torch.softmax(queries @ keys.transpose(-2, -1) * self.head_dim**-0.5, -1)
        return self.out_proj((chances @ values).transpose(1, 2).flatten(2)), None


class ClassToken(nn.Module):
    """The first of the tokens."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


def build(shape: Shape, classes: int) -> nn.Module:
    """torchvision's layers and initial values; a layer of the network is a block of the encoder."""
    channels, height, width = shape
    if height != width or height % PATCH:
        raise UserError(
            f"it cuts square images into patches of {PATCH} x {PATCH} pixels, and these have "
            f"{height} x {width}; give square ones of a multiple of {PATCH}"
        )
    models = import_torchvision("models")
    whole = models.VisionTransformer(height, PATCH, DEPTH, HEADS, WIDTH, 4 * WIDTH, num_classes=classes)
    if channels != 3:
        whole.conv_proj = nn.Conv2d(channels, WIDTH, PATCH, PATCH)
        nn.init.trunc_normal_(whole.conv_proj.weight, std=(channels * PATCH**2) ** -0.5)
        nn.init.zeros_(whole.conv_proj.bias)
    encoder = whole.encoder
    for block in encoder.layers:
        block.self_attention = Attention.of(block.self_attention)
    blocks = {f"block{number}": block for number, block in enumerate(encoder.layers, start=1)}
    return nn.Sequential(
        OrderedDict(
            patches=Patches(whole.conv_proj, whole.class_token, encoder.pos_embedding),
            **blocks,
            norm=encoder.ln,
            first=ClassToken(),
            fc=whole.heads.head,
        )
    )


@register_network(
    "vit-tiny",
    "vision transformer, patches of 4 x 4, 6 blocks of width 192",
    "Dosovitskiy et al., ICLR 2021; torchvision VisionTransformer, 3 heads as DeiT-Ti's",
    least=8,
)
def vit_tiny(shape: Shape, classes: int) -> Network:
    """2,693,578 parameters for CIFAR-10; the last layer begins at zero, as torchvision's."""
    return network_from_module(partial(build, shape, classes), SPLITS, shape)
