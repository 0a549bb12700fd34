"""Opens the judge and the model, telling the user what takes long."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dice.engine import LLM
    from dice.verify import Judge, Policy


@contextmanager
def open_judge(
    status: Any,
    *,
    seed: int | None = None,
    policy: "Policy | None" = None,
    backend: str = "simt",
    sanitizer: tuple[str, ...] = (),
    timing: bool = False,
) -> "Iterator[Judge]":
    """A judge ready to work; the first one on a machine builds its precompiled header.

    Raises:
        ToolchainError: no usable g++.
    """
    import dataclasses

    from dice.verify import Judge, Policy
    from dice.verify.backends import visible_gpu

    policy = policy or Policy()
    gpu = visible_gpu() if backend == "cuda" else 0
    if seed is not None:
        policy = dataclasses.replace(policy, seed=seed)
    with (
        Steps(status) as steps,
        Judge(
            policy,
            backend=backend,
            gpu=gpu,
            sanitizer=sanitizer,
            timing=timing,
            on_progress=steps.show,
        ) as judge,
    ):
        steps.done()
        yield judge


def open_llm(model: str) -> "LLM":
    """The engine over a named model.

    Raises:
        ModelError: no such model, or one that cannot be used.
    """
    from transformers.utils import logging as transformers_logging

    from dice.engine import LLM
    from dice.models.load import load_model

    transformers_logging.disable_progress_bar()
    warnings.filterwarnings("ignore", module="transformers")
    return LLM(load_model(model))


class Steps:
    """A spinner on a terminal, one line a step elsewhere."""

    def __init__(self, console: Any) -> None:
        self._console = console
        self._spinner: Any = None

    def show(self, message: str) -> None:
        if not self._console.is_terminal:
            self._console.print(message)
        elif self._spinner is None:
            self._spinner = self._console.status(message)
            self._spinner.start()
        else:
            self._spinner.update(message)

    def done(self) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None

    def __enter__(self) -> "Steps":
        return self

    def __exit__(self, *_: object) -> None:
        self.done()
