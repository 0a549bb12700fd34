"""Exceptions: one class per boundary that can fail.

A failed *candidate* is a `dice.types.Verdict`, never an exception. What is raised here is either the
user's mistake (`UserError` and its subclasses; the command line exits with code 2) or a broken machine.
"""


class DiceError(Exception):
    """Base of everything this package raises on purpose."""


class UserError(DiceError, ValueError):
    """Bad input. The message says what was wrong, where, and what to do."""


class ProblemError(UserError):
    """A problem file that cannot be used: no `Model`, `get_inputs` raises, not a tensor, ..."""


class ModelError(UserError):
    """A checkpoint or tokenizer that cannot be used."""


class ContextOverflow(UserError):
    """A prompt and the answer it asks for exceed the model's positions."""


class DataError(UserError):
    """A dataset, shard or record that cannot be used."""


class ToolchainError(UserError):
    """A missing or unusable compiler. (A candidate that does not compile is a `BuildFailure`.)"""


class BuildFailure(DiceError):
    """A candidate's source does not compile. The judge turns it into a `compile_error` verdict."""


class SandboxError(DiceError):
    """The sandbox itself failed (no process could be started, a limit could not be set)."""
