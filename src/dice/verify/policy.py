"""Every constant of the ruling, in one record. Torch-free."""

from dataclasses import dataclass, field

from dice.sandbox.records import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What counts as correct, and what a candidate may use (DESIGN section 4)."""

    relative: float = 1e-4
    """float32: |c - o| <= relative (|o| + rms(o)) + slack max|p - o|, with c the candidate, p PyTorch's
    float32 and o the float64 oracle."""
    relative_half: float = 1e-2
    """The same for a declared half precision."""
    slack: float = 4.0
    precision: str = "float32"
    """"float32", or the half precision that the user declared acceptable."""

    input_sets: int = 5
    construction_seed: int = 42
    seed: int = 0
    """Input seeds are derived from it and the problem's code; training passes a fresh one."""
    perturb_weights: bool = True
    """Also try other weights than the constructed ones, which are often all zeros or all ones."""

    max_elements: int = 1 << 19
    """Inputs, weights and outputs together; larger problems are reduced."""
    max_work: int = 1 << 22
    """Elements that all operations of the reference together write."""
    max_flops: int = 30_000_000
    """Of the reference's matrix products and convolutions, for one call."""
    max_reference_s: float = 1.0
    reduce_s: float = 20.0
    """Time for the search of smaller sizes."""

    check: bool = True
    """Emulate with shadow memory (out of bounds, uninitialised, races)."""
    threads: int = 1
    import_s: float = 15.0
    """Processor time for importing and constructing the candidate, its builds not counted."""
    call_s: float = 10.0
    """Processor time of one call."""
    patience: float = 4.0
    """Wall-clock limits are this many times the processor time, for a busy machine."""
    max_builds: int = 8
    step_limit: int = 0
    """Emulated steps of one launch before it counts as endless; 0 leaves that to the clock."""
    limits: Limits = field(
        default_factory=lambda: Limits(wall_s=90.0, cpu_s=90, memory_mib=4096, threads=64)
    )
    reference_limits: Limits = field(
        default_factory=lambda: Limits(wall_s=120.0, cpu_s=240, memory_mib=8192, threads=64)
    )
