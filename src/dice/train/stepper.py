"""One optimizer step: masks, forward, loss, backward, clipping, update."""

import torch
from torch import nn

from dice.config.schema import TrainSection
from dice.models.sdar import SdarForCausalLM
from dice.train.attention import build_mask
from dice.train.batches import SftBatch, TokenIds
from dice.train.losses import diffusion_loss, token_nll


class Stepper:
    """Forward, backward and update, with running sums that stay on the device until they are read."""

    def __init__(
        self,
        model: SdarForCausalLM,
        optimizer: torch.optim.Optimizer,
        settings: TrainSection,
        ids: TokenIds,
        device: torch.device,
    ) -> None:
        cuda = device.type == "cuda"
        self.model, self.optimizer, self.ids, self.device = model, optimizer, ids, device
        self.grad_clip = settings.grad_clip
        self.bf16 = cuda if settings.bf16 is None else settings.bf16
        self.compile = cuda if settings.compile is None else settings.compile
        self.attention = settings.attention
        if self.attention == "auto":
            self.attention = "flex" if cuda else "sdpa"
        if self.compile:
            # Layer by layer: one compilation serves all layers, and the embedding's backward stays
            # the sorted kernel instead of colliding atomic additions on the mask token's row.
            for layer in model.model.layers:
                layer.compile(dynamic=False)
        self.grad_norm = torch.zeros((), device=device)
        self.reset()

    def reset(self) -> None:
        """Start the running sums anew."""
        self.loss_sum = torch.zeros((), device=self.device)
        self.nll_sum = torch.zeros((), device=self.device)
        self.scored = torch.zeros((), device=self.device)
        self.steps = 0

    def step(self, batches: list[SftBatch], lr: float) -> None:
        """One optimizer step over one or more batches."""
        label_count = sum(b.label_count for b in batches)
        for batch in batches:
            self._backward(batch.to(self.device), label_count)
        self.grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.grad_clip)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1

    def _backward(self, batch: SftBatch, label_count: int) -> None:
        mask = build_mask(batch.attention, self.attention, compile=self.compile)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            hidden_BTC = self.model.model(batch.input_ids_BT, mask, batch.position_BT)
            hidden_NC = hidden_BTC.flatten(0, 1).index_select(0, batch.scored_N)
            logits_NV = self.model.lm_head(hidden_NC)
        nll_N = token_nll(logits_NV, batch.target_N, self.ids.mask)
        loss = diffusion_loss(nll_N, batch.weight_N, label_count)
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            counted_N = (batch.weight_N > 0).float()
            self.loss_sum += loss.detach()
            self.nll_sum += (nll_N.detach() * counted_N).sum()
            self.scored += counted_N.sum()
