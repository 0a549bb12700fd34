"""Every constant of the ruling, in one record, with a file form (`policy.toml`). Torch-free."""

import secrets
import tomllib
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from dice.errors import UserError
from dice.sandbox.records import Limits
from dice.types import VerdictKind
from dice.verify.timing.settings import TimingSettings

SHIPPED = Path(__file__).with_name("policy.toml")
"""The defaults, as a file to copy and change."""


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
    """"float32", or the half precision ("float16", "bfloat16") that the user declared acceptable."""

    custom: str = "correct"
    """What a right output made by kernels alone earns: "correct" or "no_custom_kernel"."""
    mixed: str = "correct"
    """The same for kernels and PyTorch (or a library) together."""
    library: str = "no_custom_kernel"
    """For PyTorch or a library called from C++, without a kernel that matters."""
    pytorch: str = "no_custom_kernel"
    """For PyTorch called from Python, without a kernel that matters."""

    input_sets: int = 6
    construction_seed: int = 42
    seed: int | None = None
    """Input seeds are derived from it and the problem's code; None draws a secret one per problem."""
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
    """Of a candidate's process."""
    reference_limits: Limits = field(
        default_factory=lambda: Limits(wall_s=120.0, cpu_s=240, memory_mib=8192, threads=64)
    )
    """Of the process that runs the problem's own code."""
    timing: TimingSettings = field(default_factory=TimingSettings)
    """Of a timing on a GPU."""

    @property
    def tolerance(self) -> float:
        """The relative tolerance of this precision."""
        return self.relative if self.precision == "float32" else self.relative_half

    def earns(self, label: str) -> VerdictKind:
        """What a right output earns whose attribution is `label`."""
        return VerdictKind({label: getattr(self, label) for label in _LABELS}[label])

    def seeded(self) -> "Policy":
        """This policy with a seed: its own, or a fresh secret one."""
        return self if self.seed is not None else replace(self, seed=secrets.randbits(48))

    def settings(self) -> dict[str, Any]:
        """Everything that decides a ruling (not the processes' limits, nor timing), as plain values."""
        values = asdict(self)
        return {name: value for name, value in values.items() if name not in _RECORDS}

    @classmethod
    def from_toml(cls, path: str | Path) -> "Policy":
        """The defaults with what a file changes. Raises UserError, also for a key that does not exist."""
        try:
            with open(path, "rb") as file:
                tables = tomllib.load(file)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from error
        except tomllib.TOMLDecodeError as error:
            raise UserError(f"{path} is no valid TOML: {error}") from error
        defaults = cls()
        values: dict[str, Any] = {}
        for section, table in tables.items():
            if section not in _SECTIONS:
                raise UserError(f"{path}: no section [{section}]; there are {_names(_SECTIONS)}")
            if not isinstance(table, dict):
                raise UserError(f"{path}: {section} is a section, not a value")
            if section in _RECORDS:
                current = getattr(defaults, section)
                values[section] = replace(current, **_checked(path, section, table, current))
            else:
                values |= _checked(path, section, table, defaults)
        return cls(**values)


_LABELS = ("custom", "mixed", "library", "pytorch")
_RECORDS = ("timing", "limits", "reference_limits")
_SECTIONS: dict[str, tuple[str, ...]] = {
    "tolerance": ("relative", "relative_half", "slack", "precision"),
    "attribution": _LABELS,
    "inputs": ("input_sets", "construction_seed", "seed", "perturb_weights"),
    "sizes": ("max_elements", "max_work", "max_flops", "max_reference_s", "reduce_s"),
    "run": ("check", "threads", "import_s", "call_s", "patience", "max_builds", "step_limit"),
    "timing": tuple(one.name for one in fields(TimingSettings)),
    "limits": tuple(one.name for one in fields(Limits)),
    "reference_limits": tuple(one.name for one in fields(Limits)),
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "precision": ("float32", "float16", "bfloat16"),
    **dict.fromkeys(_LABELS, ("correct", "no_custom_kernel")),
}


def _checked(
    path: str | Path, section: str, table: dict[str, Any], defaults: Any
) -> dict[str, Any]:
    """A section's values, each of its default's type."""
    for key, value in table.items():
        if key not in _SECTIONS[section]:
            known = _names(_SECTIONS[section])
            raise UserError(f"{path}: [{section}] has no key {key}; there are {known}")
        kind = int if key == "seed" else type(getattr(defaults, key))
        fits = type(value) is kind or (kind is float and type(value) is int)
        if not fits or (kind in (int, float) and value < 0):
            bound = " that is not negative" if kind in (int, float) else ""
            wanted = f"a value of type {kind.__name__}{bound}"
            raise UserError(f"{path}: [{section}] {key} = {value!r} is not {wanted}")
        if key in _CHOICES and value not in _CHOICES[key]:
            raise UserError(
                f"{path}: [{section}] {key} = {value!r}; choose {_names(_CHOICES[key])}"
            )
    return {
        key: float(value) if type(getattr(defaults, key)) is float else value
        for key, value in table.items()
    }


def _names(names: Any) -> str:
    return ", ".join(names)
