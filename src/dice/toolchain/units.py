"""The C++ text of the translation units of an extension."""

import re
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
from dice.toolchain.parse import (
    Function,
    ParsedSource,
    functions,
    includes,
    leaves,
    macro_names,
    parse,
)
from dice.toolchain.rewrite import rewrite
from dice.toolchain.source import BINDINGS_FILE, CPP_FILE, CUDA_FILE, ExtensionSources


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One translation unit."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedExtension:
    """An extension's two texts, parsed, and what is to be bound."""

    sources: ExtensionSources
    cpp: ParsedSource
    cuda: ParsedSource
    module: ModuleDefinition | None
    bindings: tuple[Binding, ...] | None
    """None where only pybind11 can bind: see `ModuleDefinition.bindings`."""


def parse_extension(sources: ExtensionSources) -> ParsedExtension:
    """Parse and look over an extension.

    Raises BuildFailure for includes of absolute or parent paths (a kernel file has no business with
    them) and for functions that `cpp_sources` does not declare.
    """
    cpp, cuda = parse(sources.cpp_sources), parse(sources.cuda_sources)
    for file, parsed in ((CUDA_FILE, cuda), (CPP_FILE, cpp)):
        for one in includes(parsed):
            path = Path(one.path.strip('<>"'))
            if path.is_absolute() or ".." in path.parts:
                raise BuildFailure(
                    f"{file}:{one.line}:1: error: include of {one.path} is not allowed"
                )
    module = find_module(cpp) or find_module(cuda)
    bindings = module.bindings if module is not None else requested_bindings(sources, cpp)
    return ParsedExtension(sources=sources, cpp=cpp, cuda=cuda, module=module, bindings=bindings)


def merged(extension: ParsedExtension, *, slim: bool) -> Unit:
    """One translation unit: the CUDA source, what cpp_sources adds to it, the bindings."""
    return Unit(
        name="extension",
        text=head(extension, slim)
        + marked(CUDA_FILE, _cuda_text(extension, slim=slim))
        + marked(CPP_FILE, _cpp_text(extension, slim=slim))
        + marked(BINDINGS_FILE, slim_bindings(extension) if slim else _full_bindings(extension)),
    )


def split(extension: ParsedExtension) -> tuple[Unit, ...]:
    """Two translation units, as in the stock build; the module's own source has the bindings."""
    in_cuda = find_module(extension.cuda) is not None
    bind = marked(BINDINGS_FILE, slim_bindings(extension))
    top = head(extension, True)
    cuda = marked(CUDA_FILE, _rewritten(extension.sources.cuda_sources, extension.cuda, slim=True))
    cpp = marked(CPP_FILE, _rewritten(extension.sources.cpp_sources, extension.cpp, slim=True))
    return (
        Unit(name="cuda", text=top + cuda + (bind if in_cuda else "")),
        Unit(name="cpp", text=top + cpp + ("" if in_cuda else bind)),
    )


def together(extensions: list[tuple[int, ParsedExtension]]) -> Unit:
    """One translation unit for several extensions, each in a namespace of its own.

    Includes go to the top, macros end with their extension. The Python names of extension `i` start
    with `batch_prefix(i)`, its file names with `i/`.
    """
    hoisted: dict[str, None] = {}
    parts: list[str] = []
    tables = []
    for index, one in extensions:
        assert one.bindings is not None
        hoisted |= _on_demand(one.cuda, one.cpp)
        for parsed in (one.cuda, one.cpp):
            for include in includes(parsed):
                if _angled(include.path) not in PROVIDED_HEADERS:
                    hoisted[f"#include {include.path}\n"] = None
        space = f"dice_{index}"
        names = dict.fromkeys([*macro_names(one.cuda), *macro_names(one.cpp)])
        parts += [
            f"namespace {space} {{\n",
            marked(f"{index}/{CUDA_FILE}", _cuda_text(one, slim=True, all_includes=True)),
            marked(f"{index}/{CPP_FILE}", _cpp_text(one, slim=True, all_includes=True)),
            marked(f"{index}/{BINDINGS_FILE}", wrappers(one.bindings)),
            f"}}  // namespace {space}\n",
            *(f"#undef {name}\n" for name in names),
        ]
        tables.append((batch_prefix(index), f"{space}::", one.bindings))
    return Unit(name="extension", text="".join([*hoisted, *parts, module_code(tables)]))


def batch_prefix(index: int) -> str:
    return f"b{index}_"


def defines_functions(source: ParsedSource) -> bool:
    return any(one.is_definition for one in functions(source))


ON_DEMAND_HEADERS = {
    "indexing": "<ATen/TensorIndexing.h>",
    "index": "<ATen/TensorIndexing.h>",
    "index_put_": "<ATen/TensorIndexing.h>",
    **{
        f"TORCH_CHECK_{one}": "<c10/util/Logging.h>" for one in ("EQ", "NE", "LT", "LE", "GT", "GE")
    },
}
"""Too dear for the precompiled header (each costs every build half a second): included where a
source uses the name."""


def _on_demand(*parsed: ParsedSource) -> dict[str, None]:
    """Include lines for what the sources use beyond the slim header."""
    found: dict[str, None] = {}
    for one in parsed:
        for leaf in leaves(one.root):
            member = leaf.type in ("field_identifier", "namespace_identifier")
            if leaf.text is not None and (member or leaf.text.startswith(b"TORCH_CHECK_")):
                header = ON_DEMAND_HEADERS.get(leaf.text.decode(errors="replace"))
                if header is not None:
                    found[f"#include {header}\n"] = None
    return found


def head(one: ParsedExtension, slim: bool) -> str:
    """What comes before the sources: on-demand headers and `-D` definitions."""
    lines = list(_on_demand(one.cuda, one.cpp)) if slim else []
    lines += [f"#define {name} {value}\n" for name, value in one.sources.defines]
    return "".join(lines)


def _cuda_text(one: ParsedExtension, *, slim: bool, all_includes: bool = False) -> str:
    return _rewritten(one.sources.cuda_sources, one.cuda, slim=slim, all_includes=all_includes)


def _cpp_text(one: ParsedExtension, *, slim: bool, all_includes: bool = False) -> str:
    repeated = repeated_declarations(one.cpp, one.cuda)
    return _rewritten(
        one.sources.cpp_sources, one.cpp, slim=slim, drop=repeated, all_includes=all_includes
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
    text: str,
    source: ParsedSource,
    *,
    slim: bool,
    drop: tuple[tuple[int, int], ...] = (),
    all_includes: bool = False,
) -> str:
    if slim:
        drop = (*drop, *provided_elsewhere(source, all_includes=all_includes))
    return rewrite(text, drop=drop).text


def provided_elsewhere(
    source: ParsedSource, *, all_includes: bool = False
) -> tuple[tuple[int, int], ...]:
    """Byte ranges that a slim build provides itself: the module definition and torch's headers."""
    module = find_module(source)
    found = () if module is None else ((module.start, module.end),)
    provided = (
        one for one in includes(source) if all_includes or _angled(one.path) in PROVIDED_HEADERS
    )
    return (*found, *((one.start, one.end) for one in provided))


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


def slim_bindings(one: ParsedExtension) -> str:
    assert one.bindings is not None
    return wrappers(one.bindings) + "\n" + module_code([("", "", one.bindings)])


def _full_bindings(one: ParsedExtension) -> str:
    if one.module is not None:
        return ""
    lines = "".join(
        f'  m.def("{binding.python_name}", torch::wrap_pybind_function({binding.function}));\n'
        for binding in one.bindings or ()
    )
    return f"PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{lines}}}\n"


def marked(file: str, text: str) -> str:
    return f'#line 1 "{file}"\n{text}\n'
