"""Everything that can write kernels, behind one interface (`base`): this project's own diffusion engine,
Hugging Face causal LMs, OpenAI-compatible endpoints."""

from dice.engine.backends.base import Answer, Backend, OnPause, Request, Unanswered, Usage
from dice.engine.backends.options import BackendSettings

__all__ = [
    "Answer",
    "Backend",
    "BackendSettings",
    "OnPause",
    "Request",
    "Unanswered",
    "Usage",
    "open_backend",
]


def open_backend(settings: BackendSettings, on_pause: OnPause | None = None) -> Backend:
    """The backend that a model's name asks for, loaded.

    "openai:MODEL" is an endpoint; of "nano", a folder or a hub id the config decides: `model_type` "sdar" is
    decoded by block diffusion, everything else autoregressively.

    Raises:
        UserError: settings that make no sense, or not for this model; no key.
        ModelError: a model that cannot be used.
    """
    endpoint = settings.endpoint_model
    if endpoint is not None:
        from dice.engine.backends.openai import OpenAIBackend

        return OpenAIBackend(endpoint, settings.endpoint(), on_pause)
    options = settings.local()
    from dice.engine.backends.local import model_type

    if model_type(settings.model) in ("sdar", None):
        from dice.engine.backends.diffusion import DiffusionBackend

        return DiffusionBackend(settings.model, options)
    from dice.engine.backends.causal import CausalBackend

    return CausalBackend(settings.model, options)
