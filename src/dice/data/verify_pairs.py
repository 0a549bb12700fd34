"""Does the teacher's kernel compute what its problem says? Found out by running it.

A group of pairs is compiled as one translation unit, then run in forked children, in check mode, on small
shapes: fresh inputs, fresh weights, a float64 oracle, and no finding of the memory checks. The code is our
own teacher's, so nothing is sandboxed; but a crash or a hang costs one pair, not its group.

This is a filter for training data, not the judge: `dice.verify` rules on candidates.
"""

import contextlib
import copy
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import cpp_extension

from dice.data.synth import Pair
from dice.errors import BuildFailure
from dice.toolchain.build import build_batch
from dice.toolchain.load import load_module
from dice.toolchain.simt import runtime as simt_runtime
from dice.toolchain.simt.runtime import Runtime
from dice.toolchain.source import BuildOptions, BuiltExtension, ExtensionSources
from dice.verify.correctness import compare
from dice.verify.policy import Policy

_CONSTRUCTION_SEED = 7
_REASON_BYTES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """How thoroughly a pair is checked."""

    inputs: int = 2
    """Sets of fresh inputs; from the second on, the weights are other than the constructed ones."""
    pair_timeout_s: float = 20.0
    build: BuildOptions


def verify_group(pairs: Sequence[Pair], options: CheckOptions) -> list[str | None]:
    """For each pair None when its kernel is right, else "kind: what was seen".

    Kinds: import, build, shape, values, diagnostic, weights, input_changed, error, crash, timeout.

    Raises:
        ToolchainError: no usable compiler.
    """
    simt_runtime.load(options.build)
    verdicts: list[str | None] = [None] * len(pairs)
    sources: list[ExtensionSources] = []
    owners: list[int] = []
    for number, pair in enumerate(pairs):
        try:
            found = _extension_sources(pair.kernel_code)
        except Exception as e:
            verdicts[number] = _reason("import", e)
            continue
        sources += found
        owners += [number] * len(found)
    modules: list[list[BuiltExtension]] = [[] for _ in pairs]
    for owner, built in zip(owners, build_batch(sources, options.build), strict=True):
        if isinstance(built, BuildFailure):
            verdicts[owner] = _reason("build", built)
        else:
            modules[owner].append(built)

    def check(number: int) -> str:
        return _check_pair(pairs[number], modules[number], options)

    todo = [n for n, verdict in enumerate(verdicts) if verdict is None]
    for number, answer in zip(todo, _forked(check, todo, options.pair_timeout_s), strict=True):
        verdicts[number] = answer or None
    return verdicts


def _check_pair(pair: Pair, extensions: list[BuiltExtension], options: CheckOptions) -> str:
    """Empty when right. Runs in a child."""
    runtime = simt_runtime.load(options.build)  # inherited from the parent
    runtime.set_check(True)
    problem = _execute(pair.small_code, "problem")
    with _load_inline_returns([load_module(built) for built in extensions]):
        kernel = _execute(pair.kernel_code, "kernel")
    torch.manual_seed(_CONSTRUCTION_SEED)
    arguments = problem["get_init_inputs"]()
    torch.manual_seed(_CONSTRUCTION_SEED)
    model: nn.Module = problem["Model"](*arguments)
    torch.manual_seed(_CONSTRUCTION_SEED)
    candidate: nn.Module = kernel["ModelNew"](*arguments)
    for round_number in range(options.inputs):
        torch.manual_seed(1000 + round_number)
        inputs = problem["get_inputs"]()
        if round_number:
            _perturb(model)
        complaint = _copy_state(model, candidate)
        if complaint:
            return complaint
        complaint = _compare_once(model, candidate, inputs, runtime)
        if complaint:
            return complaint
    return ""


def _compare_once(
    model: nn.Module, candidate: nn.Module, inputs: list[Any], runtime: Runtime
) -> str:
    precise = copy.deepcopy(model).double()
    with torch.no_grad():
        reference = model(*_clones(inputs))
        try:
            oracle = precise(*[_double(x) for x in inputs])
        except RuntimeError:  # an operator that has no float64 form
            oracle = None
        given = _clones(inputs)
        runtime.clear()
        try:
            output = candidate(*given)
        except RuntimeError:  # a grave finding also ends the launch
            if not runtime.diagnostics():
                raise
    found = runtime.diagnostics()
    if found:
        return _reason("diagnostic", f"{found[0].kind} in {found[0].kernel}: {found[0].message}")
    comparison = compare(output, reference, oracle, Policy())
    if not comparison.ok:
        kind = "values" if comparison.reason in ("values", "nan", "infinity") else "shape"
        return _reason(kind, comparison.message)
    for before, after in zip(inputs, given, strict=True):
        if isinstance(before, Tensor) and not torch.equal(before, after):
            return "input_changed: an input was written to"
    return ""


def _copy_state(model: nn.Module, candidate: nn.Module) -> str:
    wanted, own = model.state_dict(), candidate.state_dict()
    for name, value in wanted.items():
        if name not in own or own[name].shape != value.shape:
            return f"weights: {name} has no counterpart"
    extra = own.keys() - wanted.keys()
    if extra:
        return f"weights: {min(extra)} is not in the problem"
    candidate.load_state_dict(wanted)
    return ""


def _perturb(model: nn.Module) -> None:
    """Move every floating-point parameter: many are constructed as all zeros or all ones."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)


def _clones(inputs: list[Any]) -> list[Any]:
    return [x.clone() if isinstance(x, Tensor) else x for x in inputs]


def _double(x: Any) -> Any:
    return x.double() if isinstance(x, Tensor) and x.is_floating_point() else x


def _reason(kind: str, seen: object) -> str:
    first = str(seen).strip().splitlines()
    return f"{kind}: {first[0] if first else type(seen).__name__}"[:_REASON_BYTES]


def _execute(code: str, name: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": name}
    exec(compile(code, f"<{name}>", "exec"), namespace)
    return namespace


class _Nothing:
    """Stands for an extension while the sources are collected: every attribute is itself."""

    def __getattr__(self, name: str) -> "_Nothing":
        return self


def _extension_sources(kernel_code: str) -> list[ExtensionSources]:
    """What the file passes to `load_inline`, in order."""
    found: list[ExtensionSources] = []

    def record(name: str, cpp_sources: Any, cuda_sources: Any = None, **kwargs: Any) -> _Nothing:
        found.append(
            ExtensionSources.from_inline(name, cpp_sources, cuda_sources, kwargs.get("functions"))
        )
        return _Nothing()

    with _load_inline_is(record):
        _execute(kernel_code, "kernel")
    return found


def _load_inline_returns(modules: list[Any]) -> contextlib.AbstractContextManager[None]:
    waiting = iter(modules)
    return _load_inline_is(lambda *args, **kwargs: next(waiting))


@contextlib.contextmanager
def _load_inline_is(function: Callable[..., Any]) -> Iterator[None]:
    original = cpp_extension.load_inline
    cpp_extension.load_inline = function
    try:
        yield
    finally:
        cpp_extension.load_inline = original


def _forked(work: Callable[[int], str], items: Sequence[int], timeout_s: float) -> Iterator[str]:
    """`work` of every item, in a child that is forked again after a crash or a hang."""
    done = 0
    while done < len(items):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _child(work, items[done:], reader, writer)
        os.close(writer)
        finished, timed_out = 0, False
        with os.fdopen(reader, "rb", buffering=0) as pipe:
            for answer in _answers(pipe, timeout_s):
                if answer is None:
                    timed_out = True
                    os.kill(child, signal.SIGKILL)
                    break
                finished += 1
                yield answer
        _, status = os.waitpid(child, 0)
        done += finished
        if done < len(items) and (timed_out or status != 0):
            yield "timeout: no answer" if timed_out else f"crash: {_signal_name(status)}"
            done += 1


def _child(work: Callable[[int], str], items: Sequence[int], reader: int, writer: int) -> None:
    status = 1
    try:
        os.close(reader)
        torch.set_num_threads(1)
        for item in items:
            try:
                answer = work(item)
            except Exception as e:
                answer = _reason("error", f"{type(e).__name__}: {e}")
            os.write(writer, (answer.replace("\n", " ") + "\n").encode())
        status = 0
    finally:
        os._exit(status)


def _answers(pipe: Any, timeout_s: float) -> Iterator[str | None]:
    """Lines as they come; None when one takes too long; ends with the stream."""
    buffer = b""
    deadline = time.monotonic() + timeout_s
    while True:
        ready, _, _ = select.select([pipe], [], [], max(deadline - time.monotonic(), 0.0))
        if not ready:
            yield None
            return
        chunk = pipe.read(65536)
        if not chunk:
            return
        buffer += chunk
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            deadline = time.monotonic() + timeout_s
            yield line.decode()


def _signal_name(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit status {os.waitstatus_to_exitcode(status)}"
