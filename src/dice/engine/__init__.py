"""Block-diffusion decoding: prompts in, completions out. Rank: above `models` and `prompts`."""

from dice.engine.llm import LLM, StepEvent
from dice.engine.sampling import SamplingParams

__all__ = ["LLM", "SamplingParams", "StepEvent"]
