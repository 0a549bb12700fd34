"""What an endpoint is sent, in the spelling that it understands.

An endpoint that refuses `max_tokens` or `seed` is spoken to accordingly from then on, and a note says so; what
would change the model's answers, temperature for one, is never dropped unasked.
"""

from typing import Any

from dice.engine.backends.base import Request
from dice.engine.backends.options import EndpointOptions
from dice.errors import ModelError, UserError


class Dialect:
    """Requests for one model as one endpoint wants them."""

    def __init__(self, model: str, options: EndpointOptions) -> None:
        self.model = model
        self.notes: list[str] = []
        """What is done differently from what was asked, for the run's record."""
        self._omit = set(options.omit)
        self._length = "max_tokens"

    def body(self, request: Request) -> dict[str, Any]:
        """Arguments for the client's `chat.completions.create`.

        Raises:
            UserError: forced text, or sets of allowed tokens.
        """
        prompt, params = request.prompt, request.params
        if prompt.forced_prefix or prompt.forced_suffix:
            raise UserError(
                f"an endpoint cannot write between forced texts ({prompt.problem}); use a diffusion model"
            )
        if params.allowed_token_ids:
            raise UserError("an endpoint takes no allowed_token_ids; use a diffusion model")
        messages = [{"role": one.role, "content": one.content} for one in prompt.messages]
        settings = {
            name: value
            for name in ("temperature", "top_p", "top_k", "seed")
            if name not in self._omit and (value := getattr(params, name)) is not None
        }
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages or [{"role": "user", "content": prompt.text}],
            self._length: params.max_new_tokens,
        }
        if "top_k" in settings:  # no parameter of OpenAI's own
            body["extra_body"] = {"top_k": settings.pop("top_k")}
        return body | settings

    def adapt(self, parameter: str | None, sent: dict[str, Any], message: str) -> None:
        """The endpoint refused `parameter` of what was `sent`; speak as it understands.

        Raises:
            ModelError: something that must not be dropped unasked.
        """
        if parameter == "seed" and "seed" in sent:
            self._omit.add("seed")
            self._note("seed is not sent: the endpoint refuses it")
        elif parameter == "max_tokens" and "max_tokens" in sent:
            self._length = "max_completion_tokens"
            self._note("max_completion_tokens is sent instead of max_tokens")
        else:
            raise ModelError(
                f"the endpoint refuses a parameter of {self.model}: {message}; choose another value, or "
                "leave the parameter out (omit)"
            )

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)
