"""How many calls a batch has. Torch-free."""

import math

from dice.verify.timing.settings import TimingSettings

WARM_UP = 3
"""Calls of the first batch, whose times only say how many the others need."""
FEWEST = 3
LOOP_US = 80.0
"""What flushing the cache and waiting cost around a call, roughly."""


def calls_per_batch(
    *, call_us: float, bytes_per_call: int, free_bytes: int, settings: TimingSettings
) -> int:
    """Enough to fill the time that a batch should take, as many as fit into memory, at least one."""
    wanted = math.ceil(settings.batch_ms * 1e3 / (call_us + LOOP_US))
    wanted = max(FEWEST, min(wanted, settings.max_calls))
    room = int(settings.memory_share * free_bytes / max(1, bytes_per_call))
    return max(1, min(wanted, room))
