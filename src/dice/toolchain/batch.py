"""Many trusted extensions in one translation unit: far less than a second each.

For verifying generated data, where a precompiled header is loaded thousands of times otherwise. Not
for candidates of unknown origin: they could see each other's names.
"""

import time
from collections.abc import Sequence

from dice.errors import BuildFailure
from dice.toolchain.prelude import Progress, toolkit
from dice.toolchain.shared_object import CompileFailure, SharedObject, compile_units
from dice.toolchain.source import (
    BINDINGS_FILE,
    CPP_FILE,
    CUDA_FILE,
    BuildOptions,
    BuiltExtension,
    ExtensionSources,
)
from dice.toolchain.units import ParsedExtension, batch_prefix, parse_extension, together

_Indexed = list[tuple[int, ParsedExtension]]


def build_together(
    sources: Sequence[ExtensionSources],
    options: BuildOptions,
    on_progress: Progress | None = None,
) -> list[BuiltExtension | BuildFailure | None]:
    """Build what can be built in one unit. None stands for one that has to be built on its own."""
    results: list[BuiltExtension | BuildFailure | None] = [None] * len(sources)
    candidates: _Indexed = []
    for index, one in enumerate(sources):
        try:
            parsed = parse_extension(one)
        except BuildFailure as error:
            results[index] = error
            continue
        if parsed.bindings is not None and not one.defines:
            candidates.append((index, parsed))
    for index, built in _build(candidates, options, on_progress).items():
        results[index] = built
    return results


def _build(
    group: _Indexed, options: BuildOptions, on_progress: Progress | None
) -> dict[int, BuiltExtension]:
    """Build a group; on an error leave out those it lies in, or halve the group."""
    if not group:
        return {}
    started = time.monotonic()
    try:
        built = _compile(group, options, on_progress)
    except CompileFailure as error:
        guilty = {int(one.file.split("/")[0]) for one in error.messages if "/" in one.file}
        rest = [one for one in group if one[0] not in guilty]
        if guilty:
            return _build(rest, options, on_progress)
        if len(group) == 1:
            return {}
        half = len(group) // 2
        return _build(group[:half], options, on_progress) | _build(
            group[half:], options, on_progress
        )
    except BuildFailure:
        return {}
    seconds = (time.monotonic() - started) / len(group)
    return {
        index: BuiltExtension(
            sources=one.sources,
            path=str(built.path),
            seconds=seconds,
            route="batch",
            check=options.check,
            cached=built.cached,
            module_prefix=batch_prefix(index),
        )
        for index, one in group
    }


def _compile(group: _Indexed, options: BuildOptions, on_progress: Progress | None) -> SharedObject:
    own_files: dict[str, str] = {}
    for index, one in group:
        own_files[f"{index}/{CUDA_FILE}"] = one.sources.cuda_sources
        own_files[f"{index}/{CPP_FILE}"] = one.sources.cpp_sources
        own_files[f"{index}/{BINDINGS_FILE}"] = ""
    kit = toolkit(options, on_progress)
    return compile_units((together(group),), kit, own_files, options)
