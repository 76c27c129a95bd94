"""FedSA-LoRA: of LoRA's factors A is shared, and B stays with the client."""

from __future__ import annotations

from pfl_benchmark.method import Algorithm, low_rank_updates, register


@register
class FedSALoRA(Algorithm):
    """Both factors of LoRA train; A is sent and averaged, B and the last layer are personal.

    Source: Guo et al., ICLR 2025; Pengxin-Guo/FedSA-LoRA federatedscope/glue/yamls/fedsa-lora.yaml, where
    ``local_param`` has `lora_B` and `classifier`. Runs need ``--adapters lora:r=…``.

    Defaults: it has no hyper-parameters of its own. The official configurations have rank 8 and a factor of 2
    (``--adapters lora:r=8,alpha=16``), 3 clients that all take part, and SGD of 10 steps a round.

    Deviations: LoRA is on every layer that can have some, convolutions included, where the publication has it
    on attention; it has no dropout (0.05 there). Computation is not in half precision. Their code trains
    language models of gigabytes, so it was read and not run beside this one.

    Traps: with language models there is no classifier, and B alone is personal. Of the repository's GLUE
    configuration one version keeps `vera_lambda_b`, which LoRA does not have, so that B is averaged, too.
    """

    name = "fedsa-lora"
    title = "FedSA-LoRA"
    reference = "Guo et al., ICLR 2025; Pengxin-Guo/FedSA-LoRA"
    group = "decoupled"
    publication = (
        "Selective Aggregation for Low-Rank Adaptation in Federated Learning",
        "Guo, Pengxin and Zeng, Shuang and Wang, Yanran and Fan, Huijie and Wang, Feifei and Qu, Liangqiong",
        "ICLR",
        2025,
        "https://arxiv.org/abs/2410.01463",
    )
    pseudocode = (
        "send A; client k adds its own B_k and last layer h_k",
        "(A_k, B_k, h_k) ← SGD on the weights W + (alpha / r) B_k A_k",
        "A ← mean of the A_k, B_k and h_k stay",
    )
    needs_adapters = "lora"

    def shared_layers(self) -> tuple[str, ...]:
        return self.network.names[:-1]

    def shared_tensors(self) -> list[str]:
        return [update.names[0] for update in low_rank_updates(self.network)]
