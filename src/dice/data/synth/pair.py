"""The record that the synthesiser makes: one problem, its small twin, and the teacher's kernel file."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A PyTorch problem file and the CUDA candidate file that solves it."""

    family: str
    """Name of the operator family, e.g. "softmax"."""
    schedule: str
    """How the kernels are written, e.g. "plain", "float4", "warp_shuffle", "separate"."""
    ops: tuple[str, ...]
    """Operators in the order they are applied."""
    problem_code: str
    """A file under KernelBench's contract: `Model`, `get_inputs`, `get_init_inputs`."""
    small_code: str
    """The same file with small shapes, so that the pair can be verified by running it."""
    kernel_code: str
    """A file defining `ModelNew`; it works at both shapes."""
