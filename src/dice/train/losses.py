"""The supervised loss of SDAR (DESIGN section 5).

loss = (1/N) * sum over masked i of -log p_theta(x_i) / p_i, with p_i the probability with which i was
masked and N the number of label tokens, masked or not. In expectation over the mask every label token
weighs the same: E[sum of m_i / p_i] = N.

Shape legend: N scored positions, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def token_nll(logits_NV: Tensor, target_N: Tensor, mask_token_id: int) -> Tensor:
    """-log p of each target, in float32 [N]. The mask token is excluded from the normalisation, as in
    decoding: it is never an answer."""
    vocabulary_V = torch.arange(logits_NV.shape[-1], device=logits_NV.device)
    logits_NV = logits_NV.float().masked_fill(vocabulary_V == mask_token_id, float("-inf"))
    return F.cross_entropy(logits_NV, target_N, reduction="none")


def diffusion_loss(nll_N: Tensor, weight_N: Tensor, label_count: int) -> Tensor:
    """The loss over the masked positions, a scalar.

    Args:
        nll_N: `token_nll` at the masked positions.
        weight_N: 1/p of each position; 0 for positions that only fill up a static shape.
        label_count: N of the whole optimizer step, so that accumulated batches add up.
    """
    return (nll_N * weight_N).sum() / label_count
