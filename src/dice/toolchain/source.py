"""What goes into a build and what comes out: the records every module here shares."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

CUDA_FILE = "cuda_source"
CPP_FILE = "cpp_source"
BINDINGS_FILE = "bindings"
"""The text that this package adds after the candidate's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionSources:
    """One call of `torch.utils.cpp_extension.load_inline` (or `load`), as text.

    `functions` are the names to bind; empty when the source has its own `PYBIND11_MODULE`.
    `defines` are `-D` flags in the form `("NAME", "value")`. Headers of the candidate's own are in
    the text already (`includes`).
    """

    name: str
    cpp_sources: str = ""
    cuda_sources: str = ""
    functions: tuple[str, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    cuda_flags: tuple[str, ...] = ()
    """`extra_cuda_cflags` without `-D`: they matter on a GPU only."""
    ld_flags: tuple[str, ...] = ()
    """`extra_ldflags`, for torch's own build."""
    stock_reason: str = ""
    """Why only the stock path can build this (libraries to link, include paths); empty otherwise."""

    @classmethod
    def from_inline(
        cls,
        name: str,
        cpp_sources: str | Iterable[str] | None,
        cuda_sources: str | Iterable[str] | None = None,
        functions: str | Iterable[str] | Mapping[str, str] | None = None,
        *,
        defines: tuple[tuple[str, str], ...] = (),
        cuda_flags: tuple[str, ...] = (),
        ld_flags: tuple[str, ...] = (),
        stock_reason: str = "",
    ) -> "ExtensionSources":
        """From the arguments of `load_inline`: strings or lists of strings, functions also a dict."""
        names = (functions,) if isinstance(functions, str) else tuple(functions or ())
        return cls(
            name=name,
            cpp_sources=_joined(cpp_sources),
            cuda_sources=_joined(cuda_sources),
            functions=tuple(str(one) for one in names),
            defines=defines,
            cuda_flags=cuda_flags,
            ld_flags=ld_flags,
            stock_reason=stock_reason,
        )


def _joined(sources: str | Iterable[str] | None) -> str:
    if sources is None:
        return ""
    return sources if isinstance(sources, str) else "\n".join(sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltExtension:
    """A shared object in the cache that `dice.toolchain.load.load_module` can load."""

    sources: ExtensionSources
    path: str
    seconds: float
    """Wall time of this build, or of the cache look-up."""
    route: str
    """On the CPU: "slim" (CPython bindings), "slim-split" (one translation unit per source) or "full"
    (pybind11). On a GPU: "split" (NVRTC), "split-nvcc" or "stock"."""
    check: bool
    cached: bool = False
    module_prefix: str = ""
    """Distinguishes the functions of one source in a shared object that holds several."""
    notes: tuple[str, ...] = ()
    """Fallbacks taken and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerMessage:
    """One diagnostic at a line of the candidate's own source."""

    file: str
    line: int
    column: int
    kind: str
    text: str
    source_line: str = ""

    def __str__(self) -> str:
        head = f"{self.file}:{self.line}:{self.column}: {self.kind}: {self.text}"
        return f"{head}\n    {self.source_line}" if self.source_line else head


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """How to build. `check` instruments every load and store for the memory checks."""

    check: bool = True
    optimisation: str = "-O1"
    timeout_s: float = 60.0
    memory_mib: int = 6144
    cache_dir: str | None = None
    """None is `$DICE_CACHE`, else `~/.cache/dice`."""
    use_cache: bool = True
