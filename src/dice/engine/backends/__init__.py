"""Everything that can write kernels, behind one interface (`base`): this project's own diffusion engine,
Hugging Face causal LMs, OpenAI-compatible endpoints."""

from dice.engine.backends.base import Answer, Backend, OnPause, Request, Usage

__all__ = ["Answer", "Backend", "OnPause", "Request", "Usage"]
