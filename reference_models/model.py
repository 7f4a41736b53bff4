"""GPT-Neo of a given shape, with seeded weights, and how a trained one is written."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import GPTNeoConfig, GPTNeoForCausalLM
from transformers.modeling_outputs import CausalLMOutputWithPast

INIT_STD = 0.02
"""Standard deviation of every matrix at the start, embeddings included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The architecture of a suite: GPT-Neo, tied embeddings, no dropout."""

    vocabulary: int
    positions: int
    """The most tokens the model can see."""
    width: int
    layers: int
    heads: int
    units: int
    """Hidden units of each MLP."""
    attention: tuple[str, ...] = ("global",)
    """"global" or "local" for the first blocks, repeated over all blocks."""
    window: int = 256
    """Tokens that local attention sees."""
    head_bias: bool = False
    """Whether the output layer has a bias, which Hugging Face's GPT-Neo has not."""


class GPTNeoWithHeadBias(GPTNeoForCausalLM):
    """GPT-Neo with a bias on its logits, as in the SGTM paper (arXiv 2512.05648).

    Hugging Face's `GPTNeoForCausalLM` loads such a checkpoint without `lm_head.bias`.
    """

    def __init__(self, config: GPTNeoConfig) -> None:
        """Build the parent and give its output layer a bias of zeros."""
        super().__init__(config)
        self.lm_head.bias = nn.Parameter(torch.zeros(config.vocab_size))


def new_model(shape: Shape, *, end_of_text: int | None = None) -> GPTNeoForCausalLM:
    """A model of this shape, untrained, on the default device; `initialise` sets its weights."""
    pattern = [shape.attention[i % len(shape.attention)] for i in range(shape.layers)]
    config = GPTNeoConfig(
        vocab_size=shape.vocabulary,
        max_position_embeddings=shape.positions,
        hidden_size=shape.width,
        num_layers=shape.layers,
        num_heads=shape.heads,
        intermediate_size=shape.units,
        attention_types=[[[kind], 1] for kind in pattern],
        window_size=shape.window,
        activation_function="gelu_new",
        resid_dropout=0.0,
        embed_dropout=0.0,
        attention_dropout=0.0,
        bos_token_id=end_of_text,
        eos_token_id=end_of_text,
    )
    return GPTNeoWithHeadBias(config) if shape.head_bias else GPTNeoForCausalLM(config)


@torch.no_grad()
def initialise(model: GPTNeoForCausalLM, seed: int) -> GPTNeoForCausalLM:
    """Set every weight from the seed alone: N(0, 0.02) matrices, zero biases, unit layer norms.

    Returns:
        The same model; two models of one shape and seed are equal byte for byte.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * INIT_STD)
        else:
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
    return model


def logits_of(model: GPTNeoForCausalLM, ids: Tensor) -> Tensor:
    """Logits (batch, positions, vocabulary) of right-padded token ids."""
    output: CausalLMOutputWithPast = model(input_ids=ids, use_cache=False)
    assert output.logits is not None
    return output.logits
