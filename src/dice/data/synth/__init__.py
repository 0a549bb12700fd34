"""Random problems written the way people write them, with a teacher's CUDA kernels (DESIGN section 6)."""

from dice.data.synth.pair import Pair
from dice.data.synth.registry import FAMILIES, Family, sample_pair

__all__ = ["FAMILIES", "Family", "Pair", "sample_pair"]
