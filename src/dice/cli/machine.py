"""Opens the judge, telling the user what takes long."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dice.errors import UserError

if TYPE_CHECKING:
    from dice.verify import Judge, Policy


def choose_backend(name: str, timing: bool | None) -> tuple[str, bool]:
    """The backend's name, and whether what is correct is timed: by default where there is a GPU.

    Raises UserError for a backend that does not exist or is not there, and for times of an emulator.
    """
    from dice.verify.backends import choose

    chosen = choose(name)
    if timing and chosen != "cuda":
        raise UserError("--time needs a GPU: the CPU backend emulates one and has no speed")
    return chosen, chosen == "cuda" if timing is None else timing


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


def quiet_transformers() -> None:
    """No progress bars and warnings of the library in the command's output."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    warnings.filterwarnings("ignore", module="transformers")


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
