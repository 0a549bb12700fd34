"""Make a kernel file written for a GPU run here: its builds and its device go to the CPU backend.

`install` replaces `torch.utils.cpp_extension.load_inline` and `load`, also under names imported from
there before, and maps the CUDA device to the CPU: `.cuda()`, `.to("cuda")`, `device="cuda"`,
`torch.device("cuda")`, `torch.cuda.*` queries. It changes the process for good: install it in a
process that runs candidates and nothing else.
"""

import shlex
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dice.errors import BuildFailure
from dice.toolchain import cuda_device, includes
from dice.toolchain.build import build as build_extension
from dice.toolchain.load import load_module
from dice.toolchain.source import BuildOptions, BuiltExtension, ExtensionSources

Build = Callable[[ExtensionSources], BuiltExtension]

CUDA_SUFFIXES = {".cu", ".cuh"}


@dataclass(slots=True, kw_only=True)
class Interceptor:
    """What was built in this process through the intercepted calls, in order."""

    build: Build
    on_load: Callable[[str], None] = lambda path: None
    """Called with a build's path once it is loaded, before the candidate gets the module."""
    extensions: list[BuiltExtension] = field(default_factory=list)
    sources: list[ExtensionSources] = field(default_factory=list)
    failures: list[BuildFailure] = field(default_factory=list)

    def load_inline(
        self,
        name: str,
        cpp_sources: str | Iterable[str] | None = None,
        cuda_sources: str | Iterable[str] | None = None,
        functions: str | Iterable[str] | Mapping[str, str] | None = None,
        extra_cflags: Iterable[str] | None = None,
        extra_cuda_cflags: Iterable[str] | None = None,
        extra_ldflags: Iterable[str] | None = None,
        extra_include_paths: Iterable[str] | None = None,
        build_directory: str | None = None,
        verbose: bool = False,
        with_cuda: bool | None = None,
        is_python_module: bool = True,
        with_pytorch_error_handling: bool = True,
        keep_intermediates: bool = True,
        use_pch: bool = False,
        **newer: Any,
    ) -> types.ModuleType:
        """`torch.utils.cpp_extension.load_inline`, built by the toolchain.

        Of the flags, `-D` counts everywhere, `extra_cuda_cflags` on a GPU.
        """
        flags = [*_flags(extra_cflags), *_flags(extra_cuda_cflags)]
        pasted = _Pasted(extra_include_paths)
        sources = ExtensionSources.from_inline(
            name,
            pasted.each(cpp_sources),
            pasted.each(cuda_sources),
            functions,
            defines=_defines(flags),
            cuda_flags=_without_defines(_flags(extra_cuda_cflags)),
            ld_flags=tuple(_flags(extra_ldflags)),
            stock_reason=_stock_reason(_flags(extra_ldflags), pasted.failure),
        )
        return self._load(sources)

    def load(
        self,
        name: str,
        sources: str | Iterable[str],
        extra_cflags: Iterable[str] | None = None,
        extra_cuda_cflags: Iterable[str] | None = None,
        extra_ldflags: Iterable[str] | None = None,
        extra_include_paths: Iterable[str] | None = None,
        *arguments: Any,
        **options: Any,
    ) -> types.ModuleType:
        """`torch.utils.cpp_extension.load`: the files are read here and built from their text."""
        paths = [Path(sources)] if isinstance(sources, str) else [Path(one) for one in sources]
        texts, pasted = {True: "", False: ""}, _Pasted(extra_include_paths)
        for path in paths:
            try:
                text = path.read_text()
            except OSError as error:
                raise BuildFailure(
                    f"load: cannot read the source {path.name}: {error.strerror}"
                ) from error
            texts[path.suffix in CUDA_SUFFIXES] += pasted.one(text, path.absolute().parent) + "\n"
        flags = [*_flags(extra_cflags), *_flags(extra_cuda_cflags)]
        return self._load(
            ExtensionSources(
                name=name,
                cpp_sources=texts[False],
                cuda_sources=texts[True],
                defines=_defines(flags),
                cuda_flags=_without_defines(_flags(extra_cuda_cflags)),
                ld_flags=tuple(_flags(extra_ldflags)),
                stock_reason=_stock_reason(_flags(extra_ldflags), pasted.failure),
            )
        )

    def _load(self, sources: ExtensionSources) -> types.ModuleType:
        self.sources.append(sources)
        try:
            built = self.build(sources)
            self.extensions.append(built)
            module = load_module(built)
            self.on_load(built.path)
            return module
        except BuildFailure as error:
            self.failures.append(error)
            raise


def install(
    options: BuildOptions | None = None,
    build: Build | None = None,
    *,
    map_device: bool = True,
    on_load: Callable[[str], None] = lambda path: None,
) -> Interceptor:
    """Redirect this process's extension builds and CUDA device. Returns the record of builds.

    `build` replaces `dice.toolchain.build.build`, e.g. to have another process do it. On a GPU the
    device is not mapped (`map_device=False`).
    """
    import torch
    import torch.utils.cpp_extension

    stock: Any = torch.utils.cpp_extension
    chosen = options or BuildOptions()
    interceptor = Interceptor(
        build=build or (lambda sources: build_extension(sources, options=chosen)),
        on_load=on_load,
    )
    replaced: dict[int, Callable[..., Any]] = {
        id(stock.load_inline): interceptor.load_inline,
        id(stock.load): interceptor.load,
    }
    _replace_everywhere(replaced)
    stock.load_inline = interceptor.load_inline
    stock.load = interceptor.load
    if map_device:
        cuda_device.install(torch)
    return interceptor


def _replace_everywhere(replaced: Mapping[int, Callable[..., Any]]) -> None:
    """Names bound by `from torch.utils.cpp_extension import load_inline` in loaded modules."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        for name in ("load_inline", "load"):
            if names is not None and id(names.get(name)) in replaced:
                names[name] = replaced[id(names[name])]


def _flags(flags: Iterable[str] | None) -> list[str]:
    if flags is None:
        return []
    return shlex.split(flags) if isinstance(flags, str) else [str(one) for one in flags]


def _without_defines(flags: list[str]) -> tuple[str, ...]:
    """The flags that are no `-D`."""
    kept, skip = [], False
    for flag in flags:
        if skip or flag == "-D":
            skip = flag == "-D"
        elif not flag.startswith("-D"):
            kept.append(flag)
    return tuple(kept)


class _Pasted:
    """Sources with their own headers pasted in; `failure` says why some could not be."""

    def __init__(self, include_paths: Iterable[str] | None) -> None:
        self.failure = ""
        self._folders = [Path(one).absolute() for one in _flags(include_paths)]

    def one(self, text: str, beside: Path | None = None) -> str:
        try:
            return includes.expand(text, beside=beside, folders=self._folders)
        except includes.CannotPaste as error:
            self.failure = f"it has include paths of its own: {error}"
            return text

    def each(self, texts: str | Iterable[str] | None) -> list[str] | str | None:
        if texts is None or isinstance(texts, str):
            return None if texts is None else self.one(texts)
        return [self.one(text) for text in texts]


def _stock_reason(ldflags: list[str], paste_failure: str) -> str:
    libraries = [flag for flag in ldflags if flag.startswith("-l") and flag not in _LINKED]
    if libraries:
        return f"it links {' '.join(libraries)}"
    return paste_failure


_LINKED = {"-lcudart", "-lc10", "-lc10_cuda", "-ltorch", "-ltorch_cpu", "-ltorch_cuda", "-lm"}


def _defines(flags: list[str]) -> tuple[tuple[str, str], ...]:
    """`-DNAME` and `-DNAME=value`, also with the `-D` apart; a later one wins."""
    defines: dict[str, str] = {}
    pending = False
    for flag in flags:
        text = flag if pending else flag.removeprefix("-D")
        if not pending and not flag.startswith("-D"):
            continue
        pending = not text
        if text:
            name, _, value = text.partition("=")
            if name.isidentifier():
                defines[name] = value.replace("\n", " ") if "=" in text else "1"
    return tuple(defines.items())
