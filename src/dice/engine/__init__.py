"""Block-diffusion decoding: prompts in, completions out. Rank: above `models` and `prompts`."""

from dice.engine.llm import LLM, StepEvent
from dice.engine.request import decoding_bytes, make_canvas
from dice.engine.sampling import SamplingParams

__all__ = ["LLM", "SamplingParams", "StepEvent", "decoding_bytes", "make_canvas"]
