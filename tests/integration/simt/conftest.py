"""Builds the CUDA sources of this folder, each once per mode, and hands out the emulator's runtime."""

import re
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dice.toolchain import build, load
from dice.toolchain.simt import runtime as simt_runtime
from dice.toolchain.source import BuildOptions, ExtensionSources

HERE = Path(__file__).parent

_HOST = re.compile(r"^HOST\((\w+), (\w+), (.+), (.+), (.+)\)", re.MULTILINE)
_DECLARATION = re.compile(r"^(torch::Tensor \w+\(.*\)) \{", re.MULTILINE)
_LAUNCH = r"""
torch::Tensor \1(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  \2<<<\3, \4, \5>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""

Loader = Callable[[str, bool], types.ModuleType]


@pytest.fixture(scope="session")
def emulator() -> simt_runtime.Runtime:
    """The runtime of this process, with the checking allocator installed."""
    loaded = simt_runtime.load(BuildOptions(check=True))
    loaded.set_check(True)
    loaded.set_threads(1)
    return loaded


@pytest.fixture(autouse=True)
def clean_state(emulator: simt_runtime.Runtime) -> Iterator[None]:
    """One test's settings and findings are not the next one's."""
    emulator.set_threads(1)
    emulator.set_step_limit(0)
    emulator.clear()
    yield
    emulator.clear()


@pytest.fixture(scope="session")
def compiled(emulator: simt_runtime.Runtime) -> Loader:
    """`compiled("features", check)`: the module built from features.cu, every host function bound."""
    modules: dict[tuple[str, bool], types.ModuleType] = {}

    def load_source(name: str, check: bool) -> types.ModuleType:
        key = (name, check)
        if key not in modules:
            text = _HOST.sub(_LAUNCH, (HERE / f"{name}.cu").read_text())
            declarations = _DECLARATION.findall(text)
            names = [one.split("(")[0].split()[-1] for one in declarations]
            declared = "".join(f"{one};\n" for one in declarations)
            sources = ExtensionSources.from_inline(name, declared, text, names)
            built = build.build(sources, options=BuildOptions(check=check))
            modules[key] = load.load_module(built)
        return modules[key]

    return load_source
