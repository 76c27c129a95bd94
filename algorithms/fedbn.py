"""FedBN: FedAvg whose batch normalisation stays with the clients."""

from __future__ import annotations

from pfl_benchmark.method import (
    Algorithm,
    BatchNorm,
    Conv,
    Conv1d,
    Layer,
    Network,
    RunConfig,
    UserError,
    register,
)


@register
class FedBN(Algorithm):
    """Gains, offsets and statistics of batch normalisation are not averaged and, after θ_0, not sent.

    Source: Li et al., ICLR 2021, Algorithm 1; med-air/FedBN federated/fed_digits.py (no key that contains
    "bn" is averaged), nets/models.py.

    Defaults: it has no hyper-parameters. Officially rate 0.01, batches of 32 and one epoch a round.

    Deviations: a network of convolutional layers alone gets batch normalisation behind each, which here
    includes ReLU and pooling. Officially it stands before ReLU, and fully connected layers have one, too. Of
    a network that has some (``--network resnet8-bn``) these are kept. Clients are evaluated with the last
    aggregate and their own normalisation; one that has not taken part would have that of θ_0.
    """

    name = "fedbn"
    title = "FedBN"
    reference = "Li et al., ICLR 2021; med-air/FedBN"
    group = "decoupled"
    publication = (
        "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization",
        "Li, Xiaoxiao and Jiang, Meirui and Zhang, Xiaofei and Kamp, Michael and Dou, Qi",
        "ICLR",
        2021,
        "https://arxiv.org/abs/2102.07623",
    )
    pseudocode = (
        "w: all tensors but those of batch normalisation, b_k",
        "(w_k, b_k) ← SGD(w, b_k)",
        "w ← mean of the w_k, b_k stays",
    )
    images_only = True

    @classmethod
    def network_for(cls, network: Network, config: RunConfig, hyper: object) -> Network:
        if network.normalisation:
            return network
        layers: list[Layer] = []
        for layer in network.layers:
            layers.append(layer)
            if isinstance(layer, (Conv, Conv1d)):
                layers.append(BatchNorm(f"{layer.name}_bn", layer.channels_out))
        return Network(tuple(layers))

    @classmethod
    def check(cls, config: RunConfig, network: Network, hyper: object) -> None:
        super().check(config, network, hyper)
        if config.adapters and not network.normalisation:
            raise UserError(
                f"'{cls.name}' keeps batch normalisation, and under --adapters {config.adapters} none of it "
                "trains; drop --adapters, or give --adapters bias and a network such as resnet8-bn"
            )
        if not network.normalisation:
            raise UserError(
                f"'{cls.name}' keeps batch normalisation, and --network {config.network} has none and no "
                "layer to put one behind; choose another, such as resnet8-bn"
            )

    def shared_tensors(self) -> list[str]:
        own = self.network.normalisation
        return [name for name in super().shared_tensors() if name not in own]
