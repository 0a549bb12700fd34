"""Constants of a timing, as the policy file's section [timing] holds them. Torch-free."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingSettings:
    """How calls are timed and when a time is refused."""

    rejected: bool = False
    """Time also what has right outputs and no kernel of its own, to show what a hack filter takes away."""
    batches: int = 9
    """Measured for each side, after two that warm up."""
    batch_ms: float = 50.0
    """What a batch should take at least, so that a message's travel does not count."""
    max_calls: int = 256
    """In one batch."""
    input_sets: int = 3
    """Drawn by `get_inputs`; every call gets one of them with fresh values."""
    memory_share: float = 0.3
    """Of the GPU's free memory, for one batch's inputs and outputs."""
    checked_outputs: int = 3
    """Timed outputs compared with the oracle, drawn after their batch has ended."""
    clock_tolerance: float = 0.15
    """By how much the two clocks may differ,"""
    clock_slack_us: float = 1000.0
    """and by how much more for a whole batch: the travel of its two messages."""
    roofline_margin: float = 0.5
    """A time below this share of what moving the bytes takes at peak bandwidth is refused."""
    confidence: float = 0.95
    """Of the speedups' intervals."""
