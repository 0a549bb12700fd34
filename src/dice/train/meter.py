"""What a run reports while it trains."""

import time
from dataclasses import dataclass

import torch

from dice.train.checkpoint import Progress
from dice.train.plan import Plan
from dice.train.stepper import Stepper


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What a progress callback and metrics.jsonl get, every `log_every` steps and at the end."""

    step: int
    total_steps: int | None
    """None under a time budget."""
    done: float
    """Share of the run that is done, in steps or in time."""
    epoch: int
    loss: float
    """The objective, averaged over the steps since the last report."""
    nll: float
    """Mean -log p of the masked tokens, unweighted, over the same steps."""
    grad_norm: float
    """Before clipping, of the last step."""
    lr: float
    tokens: int
    tokens_per_s: float
    """Training tokens, each counted once, since the last report."""
    elapsed_s: float


class Meter:
    """Wall time and throughput. Time stands still until the first step of this process is done, so that
    compilation counts neither for the schedule nor for the speed."""

    def __init__(self, plan: Plan, start: Progress, device: torch.device) -> None:
        self.plan, self.device = plan, device
        self.base_s = start.elapsed_s
        self.started: float | None = None
        self.last_s = start.elapsed_s
        self.last_tokens = start.tokens

    def elapsed_s(self, tokens: int) -> float:
        """Training time of the whole run so far, in which `tokens` were trained on."""
        if self.started is None:
            self._synchronise()
            self.started = time.monotonic()
            self.last_tokens = tokens
        return self.base_s + time.monotonic() - self.started

    def report(self, progress: Progress, stepper: Stepper, lr: float) -> StepReport:
        """Read the sums since the last report, and start new ones."""
        loss = float(stepper.loss_sum) / stepper.steps
        nll = float(stepper.nll_sum) / max(float(stepper.scored), 1.0)
        now_s = self.elapsed_s(progress.tokens)
        speed = (progress.tokens - self.last_tokens) / max(now_s - self.last_s, 1e-9)
        self.last_tokens, self.last_s = progress.tokens, now_s
        stepper.reset()
        return StepReport(
            step=progress.step,
            total_steps=self.plan.total_steps,
            done=min(self.plan.done(progress), 1.0),
            epoch=progress.epoch,
            loss=loss,
            nll=nll,
            grad_norm=float(stepper.grad_norm),
            lr=lr,
            tokens=progress.tokens,
            tokens_per_s=speed,
            elapsed_s=now_s,
        )

    def _synchronise(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
