"""Block-diffusion checkpoints, decoded by this project's own engine."""

import time
from collections.abc import Generator, Iterable
from types import TracebackType

from dice.engine.backends.base import CONTEXT_OVERFLOW, Answer, Request, Usage
from dice.engine.backends.local import dtype_of, groups, identity
from dice.engine.backends.options import LocalOptions
from dice.engine.events import Finished
from dice.engine.llm import LLM
from dice.engine.request import make_canvas
from dice.errors import ContextOverflow, ModelError
from dice.models.load import choose_device, open_checkpoint
from dice.types import Completion

_ROWS = {"cuda": 64, "cpu": 8}
"""Sequences at a time; more on a CPU only make the first answer late."""
_GROUPS = 4
"""Requests taken at a time, in rows: as one ends, the next moves up."""


class DiffusionBackend:
    """One checkpoint, loaded.

    Raises:
        UserError: no such device.
        ModelError: a checkpoint or adapter that cannot be used, or too little memory.
    """

    def __init__(self, name: str, options: LocalOptions) -> None:
        checkpoint = open_checkpoint(name)
        device = choose_device(options.device)
        dtype = dtype_of(options, device)
        loaded = checkpoint.load(device=device, dtype=dtype, adapter=options.adapter)
        self.name = name
        self.template = options.template or loaded.template
        self.defaults = loaded.generation
        self.block_size = loaded.block_size
        self._rows = options.rows or _ROWS[device.type]
        self._llm: LLM | None = LLM(loaded, max_rows=self._rows)
        self._decode = loaded.tokenizer.decode
        self._description: dict[str, object] = {
            "kind": "diffusion",
            "model": name,
            **identity(name),
            "adapter": options.adapter,
            "adapter_sha256": identity(options.adapter)["weights_sha256"]
            if options.adapter
            else None,
            "template": self.template,
            "block_size": self.block_size,
            "dtype": str(dtype).removeprefix("torch."),
            "device": str(device),
        }

    def describe(self) -> dict[str, object]:
        return dict(self._description)

    def pieces(self, completion: Completion) -> tuple[str, ...] | None:
        return tuple(str(self._decode([token_id])) for token_id in completion.token_ids)

    def answers(self, requests: Iterable[Request]) -> Generator[Answer, None, None]:
        llm = self._llm
        if llm is None:
            raise ModelError(f"{self.name} is closed")
        for group in groups(requests, _GROUPS * self._rows):
            fitting = []
            for request in group:
                try:
                    make_canvas(llm.loaded, request.prompt, request.params)
                except ContextOverflow as error:
                    yield Answer(request=request, failure=CONTEXT_OVERFLOW, message=str(error))
                else:
                    fitting.append(request)
            began = time.monotonic()
            prompts, params = [one.prompt for one in fitting], [one.params for one in fitting]
            with llm.stream(prompts, params, steps=False) as stream:
                for event in stream:
                    if isinstance(event, Finished):
                        yield Answer(
                            request=fitting[event.request],
                            completion=event.completion,
                            usage=_usage(event.completion),
                            seconds=time.monotonic() - began,
                        )

    def close(self) -> None:
        self._llm = None

    def __enter__(self) -> "DiffusionBackend":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _usage(completion: Completion) -> Usage:
    written = sum(step is not None for step in completion.steps)
    return Usage(prompt_tokens=len(completion.prompt_ids), completion_tokens=written)
