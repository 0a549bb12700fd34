"""Build one extension: source text to a shared object in the cache.

Routes, in order. "slim": one translation unit, CUDA source first, over the slim precompiled header.
"slim-split": one translation unit per source, when both define functions and do not go together.
"full": torch/extension.h and pybind11, for a module body that the slim bindings do not understand or
a source that needs more of torch's C++ API. The route taken is in the result.
"""

import json
import logging
import re
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from dice.errors import BuildFailure
from dice.toolchain.bindings import (
    Binding,
    ModuleDefinition,
    find_module,
    module_code,
    requested_bindings,
    wrappers,
)
from dice.toolchain.cache import Cache, cache_root, digest
from dice.toolchain.compiler import candidate_messages, failure, run_hostile
from dice.toolchain.parse import Function, ParsedSource, functions, includes, parse
from dice.toolchain.prelude import Progress, Toolkit, toolkit
from dice.toolchain.rewrite import rewrite
from dice.toolchain.source import (
    CPP_FILE,
    CUDA_FILE,
    BuildOptions,
    BuiltExtension,
    CompilerMessage,
    ExtensionSources,
)

logger = logging.getLogger(__name__)

KIND = "extensions"
_FORMAT = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The C++ of one translation unit, before its line markers are resolved."""

    name: str
    text: str


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
    refuse_foreign_includes(sources)
    cpp, cuda = parse(sources.cpp_sources), parse(sources.cuda_sources)
    module = find_module(cpp) or find_module(cuda)
    notes: list[str] = []
    plans = _plans(sources, cpp, cuda, module)
    error: BuildFailure | None = None
    for plan in plans:
        if plan.route == "full" and error is not None and not _full_header_may_help(error, sources):
            break
        try:
            path, cached = _build_plan(sources, plan, options, on_progress)
        except BuildFailure as problem:
            notes.append(f"the {plan.route} route failed: {str(problem).splitlines()[0]}")
            error = error or problem
            continue
        return BuiltExtension(
            sources=sources,
            path=str(path),
            seconds=time.monotonic() - started,
            route=plan.route,
            check=options.check,
            cached=cached,
            notes=tuple(notes),
        )
    assert error is not None
    raise error


def refuse_foreign_includes(sources: ExtensionSources) -> None:
    """Reject includes of absolute or parent paths: a kernel file has no business with them."""
    for file, text in ((CUDA_FILE, sources.cuda_sources), (CPP_FILE, sources.cpp_sources)):
        for one in includes(parse(text)):
            path = Path(one.path.strip('<>"'))
            if path.is_absolute() or ".." in path.parts:
                raise BuildFailure(
                    f"{file}:{one.line}:1: error: include of {one.path} is not allowed"
                )


def _plans(
    sources: ExtensionSources,
    cpp: ParsedSource,
    cuda: ParsedSource,
    module: ModuleDefinition | None,
) -> list[_Plan]:
    if module is not None and module.bindings is None:
        return [_Plan(route="full", units=(_merged(sources, cpp, cuda, None, bound=False),))]
    if module is not None and module.bindings is not None:
        bindings: tuple[Binding, ...] = module.bindings
    else:
        bindings = requested_bindings(sources, cpp)
    plans = [_Plan(route="slim", units=(_merged(sources, cpp, cuda, bindings, bound=True),))]
    if any(one.is_definition for one in functions(cpp)) and sources.cuda_sources.strip():
        plans.append(_Plan(route="slim-split", units=_split(sources, cpp, cuda, bindings)))
    if module is not None:
        plans.append(_Plan(route="full", units=(_merged(sources, cpp, cuda, None, bound=False),)))
    else:
        plans.append(
            _Plan(route="full", units=(_merged(sources, cpp, cuda, bindings, bound=False),))
        )
    return plans


def _define_lines(sources: ExtensionSources) -> str:
    return "".join(f"#define {name} {value}\n" for name, value in sources.defines)


def _merged(
    sources: ExtensionSources,
    cpp: ParsedSource,
    cuda: ParsedSource,
    bindings: tuple[Binding, ...] | None,
    *,
    bound: bool,
) -> Unit:
    """One translation unit: the CUDA source, then what cpp_sources adds to it."""
    cuda_text = _rewritten(sources.cuda_sources, cuda, (), slim=bound)
    cpp_text = _rewritten(sources.cpp_sources, cpp, repeated_declarations(cpp, cuda), slim=bound)
    return Unit(
        name="extension",
        text=_define_lines(sources)
        + _marked(CUDA_FILE, cuda_text)
        + _marked(CPP_FILE, cpp_text)
        + _marked("bindings", _binding_text(bindings, bound)),
    )


def _split(
    sources: ExtensionSources,
    cpp: ParsedSource,
    cuda: ParsedSource,
    bindings: tuple[Binding, ...],
) -> tuple[Unit, ...]:
    """Two translation units, as in the stock build; the module's own file has the bindings."""
    in_cuda = find_module(cuda) is not None
    bind = _marked("bindings", _binding_text(bindings, True))
    cuda_text = _marked(CUDA_FILE, _rewritten(sources.cuda_sources, cuda, (), slim=True))
    cpp_text = _marked(CPP_FILE, _rewritten(sources.cpp_sources, cpp, (), slim=True))
    defines = _define_lines(sources)
    return (
        Unit(name="cuda", text=defines + cuda_text + (bind if in_cuda else "")),
        Unit(name="cpp", text=defines + cpp_text + ("" if in_cuda else bind)),
    )


PROVIDED_HEADERS = {
    "<torch/extension.h>",
    "<torch/torch.h>",
    "<torch/types.h>",
    "<torch/all.h>",
    "<torch/script.h>",
    "<torch/python.h>",
    "<torch/serialize/tensor.h>",
    "<ATen/ATen.h>",
    "<ATen/Functions.h>",
    "<ATen/Tensor.h>",
    "<pybind11/pybind11.h>",
    "<pybind11/stl.h>",
    "<pybind11/numpy.h>",
}
"""What the slim precompiled header stands for: such includes are dropped from slim builds."""


def _rewritten(
    text: str, source: ParsedSource, drop: tuple[tuple[int, int], ...], *, slim: bool
) -> str:
    if slim:
        module = find_module(source)
        if module is not None:
            drop = (*drop, (module.start, module.end))
        provided = (one for one in includes(source) if _angled(one.path) in PROVIDED_HEADERS)
        drop = (*drop, *((one.start, one.end) for one in provided))
    return rewrite(text, drop=drop).text


def _angled(path: str) -> str:
    return f"<{path[1:-1].strip()}>"


def repeated_declarations(cpp: ParsedSource, cuda: ParsedSource) -> tuple[tuple[int, int], ...]:
    """Byte ranges of declarations in `cpp` that the CUDA source makes too.

    In one translation unit a default argument may be given once only; the declaration adds nothing.
    """
    known = {_signature(one) for one in functions(cuda) if not one.is_template}
    return tuple(
        (one.start, one.end)
        for one in functions(cpp)
        if not one.is_definition and _signature(one) in known
    )


_NOT_TYPE = re.compile(r"\b(?:const|torch::|at::|c10::|std::)|\s")


def _signature(function: Function) -> tuple[str, ...]:
    return (function.name, *(_NOT_TYPE.sub("", one.type) for one in function.parameters))


def _binding_text(bindings: tuple[Binding, ...] | None, bound: bool) -> str:
    if bindings is None:
        return ""
    if bound:
        return wrappers(bindings) + "\n" + module_code([("", "", bindings)])
    lines = "".join(
        f'  m.def("{one.python_name}", torch::wrap_pybind_function({one.function}));\n'
        for one in bindings
    )
    return f"PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{lines}}}\n"


def _marked(file: str, text: str) -> str:
    return f'#line 1 "{file}"\n{text}\n'


def _build_plan(
    sources: ExtensionSources, plan: _Plan, options: BuildOptions, on_progress: Progress | None
) -> tuple[Path, bool]:
    kit = toolkit(options, on_progress, full=plan.route == "full")
    own_files = {
        CUDA_FILE: sources.cuda_sources,
        CPP_FILE: sources.cpp_sources,
        "bindings": "",
    }
    return compile_units(plan.units, kit, own_files, sources.include_dirs, options)


def compile_units(
    units: tuple[Unit, ...],
    kit: Toolkit,
    own_files: dict[str, str],
    include_dirs: tuple[str, ...],
    options: BuildOptions,
) -> tuple[Path, bool]:
    """Compile and link translation units into a cached shared object.

    Returns its path and whether it was in the cache. Raises BuildFailure; a failure is cached too,
    unless it was a timeout.
    """
    cache = Cache(cache_root(options.cache_dir))
    key = digest(
        _FORMAT, kit.key, *include_dirs, *(part for one in units for part in (one.name, one.text))
    )
    if not options.use_cache or include_dirs:
        key += f"-{uuid.uuid4().hex[:8]}"
    found = cache.find(KIND, key)
    if found is not None:
        return _cached(found), True
    with cache.workspace() as workspace:
        built = workspace / "built"
        built.mkdir()
        files = []
        for unit in units:
            file = workspace / f"{unit.name}.cpp"
            file.write_text(unit.text)
            files.append(file)
        command: list[str | Path] = [kit.compiler, *kit.flags, "-Winvalid-pch"]
        command += [f"-I{one}" for one in include_dirs]
        command += ["-include", kit.header, "-c", *files]
        objects = [file.with_suffix(".o") for file in files]
        link: list[str | Path] = [
            kit.compiler,
            *objects,
            "-o",
            built / "extension.so",
            *kit.link_flags,
        ]
        ran = run_hostile(
            [command, link],
            cwd=workspace,
            readable=[*kit.readable_dirs, *include_dirs],
            timeout_s=options.timeout_s,
            memory_mib=options.memory_mib,
        )
        if ran.returncode != 0:
            logger.debug("compiler output:\n%s", ran.output)
            messages = candidate_messages(ran.output, own_files, kit.trusted_dirs)
            problem = failure(ran, messages, options.timeout_s)
            if not ran.timed_out and messages:
                (built / "failure.json").write_text(json.dumps(_records(messages)))
                cache.publish(built, KIND, key)
            raise problem
        return cache.publish(built, KIND, key) / "extension.so", False


def _records(messages: list[CompilerMessage]) -> list[str]:
    return [str(one) for one in messages[:10]]


def _cached(entry: Path) -> Path:
    failed = entry / "failure.json"
    if failed.exists():
        raise BuildFailure("\n".join(json.loads(failed.read_text())))
    return entry / "extension.so"


_NEEDS_FULL = re.compile(
    r"is not a member of '(?:torch|at|c10|pybind11)|'(?:py|pybind11)' has not been declared"
    r"|torch/[\w/]+\.h: No such file|'(?:torch|at)::\w+' has not been declared"
)


def _full_header_may_help(error: BuildFailure, sources: ExtensionSources) -> bool:
    """Whether an error of the slim route looks like something torch/extension.h would provide."""
    return _NEEDS_FULL.search(str(error)) is not None
