"""Learning-rate schedules over the fraction of a run that is done."""

import math

from dice.config.schema import TrainSection


def learning_rate(progress: float, config: TrainSection) -> float:
    """The rate at `progress` in [0, 1] of the run, counted in steps or in time.

    Linear warmup, then "cosine": half a cosine down to `min_lr_ratio`; or "wsd": constant, then linear
    over the last `decay_fraction`.
    """
    progress = min(max(progress, 0.0), 1.0)
    if progress < config.warmup_fraction:
        return config.lr * progress / config.warmup_fraction
    if config.schedule == "cosine":
        done = (progress - config.warmup_fraction) / max(1.0 - config.warmup_fraction, 1e-12)
        height = 0.5 * (1.0 + math.cos(math.pi * done))
    else:
        left = 1.0 - progress
        height = min(1.0, left / config.decay_fraction) if config.decay_fraction > 0 else 1.0
    return config.lr * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * height)
