"""Supervised fine-tuning (and training from scratch) of a block-diffusion model.

`train_sft` is the whole loop: plan the epochs' rows, draw noise, forward, loss, step, log, save. A run
that is stopped and resumed goes on exactly as if it had not been stopped, to the bit on a CPU, except that a
time budget's schedule reads the clock.

Not covered: several GPUs.
"""

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch

from dice.config.schema import SftConfig
from dice.data.store import SampleStore
from dice.errors import DiceError
from dice.models.sdar import SdarForCausalLM
from dice.train.batches import TokenIds
from dice.train.checkpoint import Progress, load_checkpoint, save_checkpoint
from dice.train.meter import Meter, StepReport
from dice.train.optimizer import make_optimizer
from dice.train.plan import Plan
from dice.train.rundir import RunDir
from dice.train.schedule import learning_rate
from dice.train.stepper import Stepper


@dataclass(frozen=True, slots=True, kw_only=True)
class SftResult:
    """How a run ended."""

    progress: Progress
    loss: float | None
    interrupted: bool
    """Stopped early, by Ctrl-C or `should_stop`; the checkpoint is saved and the run can be resumed."""


def train_sft(
    config: SftConfig,
    *,
    model: SdarForCausalLM,
    store: SampleStore,
    ids: TokenIds,
    run_dir: Path,
    device: torch.device | str = "cpu",
    resume: bool = False,
    on_progress: Callable[[StepReport], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> SftResult:
    """Train `model`, float32 and changed in place, on `store`.

    Args:
        run_dir: config, provenance, metrics and checkpoint land here.
        resume: continue from the checkpoint in `run_dir`.
        should_stop: asked before every step.

    Raises:
        DataError: nothing to train on, or a checkpoint that does not fit.
        UserError: `run_dir` holds a run and `resume` is False.
        DiceError: the loss is no longer finite.
    """
    settings, run = config.train, RunDir(run_dir)
    device = torch.device(device)
    model.to(device).train()
    optimizer = make_optimizer(model, settings)
    progress = Progress()
    if resume:
        progress = load_checkpoint(run.checkpoint, model=model, optimizer=optimizer)
    run.start(config, seed=settings.seed, resume=resume)
    stepper = Stepper(model, optimizer, settings, ids, device)
    plan = Plan(store, settings, ids)
    meter = Meter(plan, progress, device)
    loss: float | None = None
    interrupted = False

    with _interrupt_flag() as pressed:
        for position, batches in plan.steps(progress):
            if plan.finished(progress):
                break
            if pressed.is_set() or should_stop():
                interrupted = True
                break
            lr = learning_rate(plan.done(progress), settings)
            stepper.step(batches, lr)
            tokens = progress.tokens + sum(b.token_count for b in batches)
            progress = Progress(
                step=progress.step + 1,
                epoch=position.epoch,
                batch=position.batch,
                tokens=tokens,
                elapsed_s=meter.elapsed_s(tokens),
            )
            if progress.step % settings.log_every == 0 or plan.finished(progress):
                report = meter.report(progress, stepper, lr)
                loss = report.loss
                run.log({f: getattr(report, f) for f in report.__slots__})
                if not math.isfinite(loss):
                    raise DiceError(f"the loss is {loss} at step {progress.step}; lower train.lr")
                if on_progress is not None:
                    on_progress(report)
            if progress.step % settings.checkpoint_every == 0:
                save_checkpoint(run.checkpoint, model=model, optimizer=optimizer, progress=progress)
    save_checkpoint(run.checkpoint, model=model, optimizer=optimizer, progress=progress)
    return SftResult(progress=progress, loss=loss, interrupted=interrupted)


@contextlib.contextmanager
def _interrupt_flag() -> Iterator[threading.Event]:
    """Turns the first Ctrl-C into a flag, so that a step is never cut in half; a second one raises."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    previous = signal.signal(signal.SIGINT, on_signal)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, previous)
