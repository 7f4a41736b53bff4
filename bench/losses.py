"""Losses over next tokens: what trainer, attacks, measurements and submissions share.

Position t predicts token t + 1 for t + 1 < length; everything from `length` on is padding and
counts for nothing, whatever its tokens are.
"""

from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812  # the field's usual name
from torch import Tensor

IGNORED: Final = -100
"""The label of a position that has no next token."""


def next_tokens(logits: Tensor, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The predictions of all real next tokens, and those tokens.

    Args:
        logits: (blocks, tokens, vocabulary).
        ids: (blocks, tokens) int64.
        lengths: (blocks,) real tokens of each block.

    Returns:
        Logits (n, vocabulary) in float32 and targets (n,), n = sum of (length - 1) over blocks;
        empty where no block has two tokens.
    """
    real = _real(ids, lengths)
    return logits[:, :-1][real].float(), ids[:, 1:][real]


def token_losses(logits: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
    """Cross-entropy of every real next token, (n,) nats; arguments as for `next_tokens`."""
    return F.cross_entropy(*next_tokens(logits, ids, lengths), reduction="none")


def sequence_losses(logits: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
    """Cross-entropy of each block: the sum over its real next tokens, (blocks,) nats.

    Arguments as for `next_tokens`. A block without two tokens has a loss of 0.
    """
    real = _real(ids, lengths)
    losses = token_losses(logits, ids, lengths)
    return torch.zeros(real.shape, device=ids.device).masked_scatter(real, losses).sum(1)


def mean_kl(logits: Tensor, reference: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
    """KL(reference || model) of the next token, full vocabulary, nats per real token.

    Args:
        logits: The model's, (blocks, tokens, vocabulary).
        reference: The other model's, of the same shape.
        ids: (blocks, tokens) int64.
        lengths: (blocks,) real tokens of each block.

    Returns:
        A scalar; NaN where no block has two tokens.
    """
    model, _ = next_tokens(logits, ids, lengths)
    other, _ = next_tokens(reference, ids, lengths)
    log_q, log_p = model.log_softmax(-1), other.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1).mean()


def _real(ids: Tensor, lengths: Tensor) -> Tensor:
    """(blocks, tokens - 1) bool: true where the next token is one."""
    return torch.arange(1, ids.shape[1], device=ids.device) < lengths[:, None]


def next_token_loss(logits: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
    """Mean cross-entropy of the next token, in nats per real token.

    Args:
        logits: (batch, positions, vocabulary).
        ids: (batch, positions) int64.
        lengths: (batch,) real tokens of each row.

    Returns:
        A scalar; NaN where no row has two real tokens.
    """
    # Labels move, not logits: slicing off the last logits would copy all of them.
    labels = torch.full_like(ids, IGNORED)
    labels[:, :-1] = ids[:, 1:]
    following = torch.arange(1, ids.shape[1] + 1, device=ids.device)
    labels.masked_fill_(following >= lengths[:, None], IGNORED)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
