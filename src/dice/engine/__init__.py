"""Block-diffusion decoding: prompts in, completions out. Rank: above `models` and `prompts`."""

from dice.engine.events import Finished, StepEvent, Stream
from dice.engine.llm import LLM
from dice.engine.request import decoding_bytes, make_canvas
from dice.engine.sampling import SamplingParams

__all__ = [
    "LLM",
    "Finished",
    "SamplingParams",
    "StepEvent",
    "Stream",
    "decoding_bytes",
    "make_canvas",
]
