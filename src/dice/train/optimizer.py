"""AdamW with weight decay on matrices only."""

import torch
from torch import nn

from dice.config.schema import TrainSection


def make_optimizer(model: nn.Module, config: TrainSection) -> torch.optim.AdamW:
    """Two groups: weights of linear layers decay; embeddings (a tied head with them), norms and biases
    do not."""
    embeddings = {
        id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)
    }
    parameters = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for p in parameters if p.ndim >= 2 and id(p) not in embeddings]
    kept = [p for p in parameters if p.ndim < 2 or id(p) in embeddings]
    on_cuda = all(p.is_cuda for p in parameters)
    return torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": config.weight_decay},
            {"params": kept, "weight_decay": 0.0},
        ],
        lr=config.lr,
        betas=config.betas,
        eps=config.adam_eps,
        fused=on_cuda,
    )
