"""Cross-entropy of the next token: the one loss of trainer, attacks, measurements and submissions.

Position t predicts token t + 1 for t + 1 < length; everything from `length` on is padding and
counts for nothing, whatever its tokens are.
"""

from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812  # the field's usual name
from torch import Tensor

IGNORED: Final = -100
"""The label of a position that has no next token."""


def token_losses(logits: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
    """Cross-entropy of every real next token.

    Args:
        logits: (blocks, tokens, vocabulary).
        ids: (blocks, tokens) int64.
        lengths: (blocks,) real tokens of each block.

    Returns:
        (n,) nats, n = sum of (length - 1) over blocks; empty where no block has two tokens.
    """
    real = torch.arange(1, ids.shape[1], device=ids.device) < lengths[:, None]
    return F.cross_entropy(logits[:, :-1][real].float(), ids[:, 1:][real], reduction="none")


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
