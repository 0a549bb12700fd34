"""Build extensions: source text to a shared object in the cache.

Routes, in order. "slim": one translation unit, CUDA source first, over the slim precompiled header.
"slim-split": one translation unit per source, when both define functions and do not go together.
"full": torch/extension.h and pybind11, for a module body that the slim bindings do not understand or
a source that needs more of torch's C++ API. The route taken is in the result.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from dice.errors import BuildFailure
from dice.toolchain.batch import build_together
from dice.toolchain.prelude import Progress, toolkit
from dice.toolchain.shared_object import SharedObject, compile_units
from dice.toolchain.source import (
    BINDINGS_FILE,
    CPP_FILE,
    CUDA_FILE,
    BuildOptions,
    BuiltExtension,
    ExtensionSources,
)
from dice.toolchain.units import (
    ParsedExtension,
    Unit,
    defines_functions,
    merged,
    parse_extension,
    split,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How to build one extension: its route and translation units."""

    route: str
    units: tuple[Unit, ...]


def build(
    sources: ExtensionSources,
    *,
    options: BuildOptions | None = None,
    on_progress: Progress | None = None,
) -> BuiltExtension:
    """Build an extension, or find it in the cache.

    Raises BuildFailure, with messages at the candidate's own lines, for a source that does not
    compile; ToolchainError for a machine without a usable compiler.
    """
    options = options or BuildOptions()
    started = time.monotonic()
    extension = parse_extension(sources)
    notes: list[str] = []
    first_error: BuildFailure | None = None
    for plan in _plans(extension):
        if plan.route == "full" and first_error is not None and not _full_may_help(first_error):
            break
        try:
            built = _compile(sources, plan, options, on_progress)
        except BuildFailure as error:
            notes.append(f"the {plan.route} route failed: {str(error).splitlines()[0]}")
            first_error = first_error or error
            continue
        return BuiltExtension(
            sources=sources,
            path=str(built.path),
            seconds=time.monotonic() - started,
            route=plan.route,
            check=options.check,
            cached=built.cached,
            notes=tuple(notes),
        )
    assert first_error is not None
    raise first_error


def build_batch(
    sources: Sequence[ExtensionSources],
    options: BuildOptions | None = None,
    on_progress: Progress | None = None,
) -> list[BuiltExtension | BuildFailure]:
    """Build many extensions, in one translation unit as far as they go together.

    For sources of our own making: they share a shared object. What does not compile with the others
    is built alone, so that its failure is its own.
    """
    options = options or BuildOptions()
    results: list[BuiltExtension | BuildFailure] = []
    for one, built in zip(sources, build_together(sources, options, on_progress), strict=True):
        if built is not None:
            results.append(built)
            continue
        try:
            results.append(build(one, options=options, on_progress=on_progress))
        except BuildFailure as error:
            results.append(error)
    return results


def _plans(extension: ParsedExtension) -> list[_Plan]:
    full = _Plan(route="full", units=(merged(extension, slim=False),))
    if extension.bindings is None:
        return [full]
    plans = [_Plan(route="slim", units=(merged(extension, slim=True),))]
    if defines_functions(extension.cpp) and extension.sources.cuda_sources.strip():
        plans.append(_Plan(route="slim-split", units=split(extension)))
    return [*plans, full]


def _compile(
    sources: ExtensionSources, plan: _Plan, options: BuildOptions, on_progress: Progress | None
) -> SharedObject:
    kit = toolkit(options, on_progress, full=plan.route == "full")
    own_files = {CUDA_FILE: sources.cuda_sources, CPP_FILE: sources.cpp_sources, BINDINGS_FILE: ""}
    return compile_units(plan.units, kit, own_files, options)


_NEEDS_FULL = re.compile(
    r"is not a member of '(?:torch|at|c10|pybind11)|'(?:py|pybind11)' has not been declared"
    r"|torch/[\w/]+\.h: No such file|'(?:torch|at)::\w+' has not been declared"
)


def _full_may_help(error: BuildFailure) -> bool:
    """Whether an error of the slim route looks like something torch/extension.h would provide."""
    return _NEEDS_FULL.search(str(error)) is not None
