"""A build that is killed half-way: no compiler is left, no lock, and the next build succeeds."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

from dice.toolchain.build import build
from dice.toolchain.cache import cache_root
from dice.toolchain.source import ExtensionSources

PROGRAM = """
import sys
from dice.toolchain.build import build
from dice.toolchain.source import BuildOptions, ExtensionSources
print("building", flush=True)
build(ExtensionSources(name="killed", cpp_sources="torch::Tensor f(torch::Tensor x);",
                       cuda_sources=sys.argv[1], functions=("f",)),
      options=BuildOptions(check=False))
"""


def compilers(pid):
    """Processes that work in a workspace of the builder `pid`, as {pid: command}."""
    workspace = f"{cache_root() / 'tmp'}/{pid}-"
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != pid:
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if workspace in command:
                found[int(entry.name)] = command.replace("\0", " ")
    return found


def test_a_build_killed_half_way_costs_nothing(fast_options):
    cuda = (
        f"// {uuid.uuid4()}\n"
        "__global__ void k(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] + 1; }\n"
        "torch::Tensor f(torch::Tensor x) {\n"
        "  auto y = torch::empty_like(x);\n"
        "  k<<<1, x.numel()>>>(x.data_ptr<float>(), y.data_ptr<float>());\n"
        "  return y;\n"
        "}\n"
    )
    source = str(Path(__file__).parents[3] / "src")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, cuda],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source},
    ) as builder:
        assert builder.stdout.readline() == b"building\n"
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not any(
            "cc1plus" in command for command in compilers(builder.pid).values()
        ):
            time.sleep(0.005)
        assert compilers(builder.pid), "the compiler was never seen at work"
        os.kill(builder.pid, signal.SIGKILL)
        builder.wait()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and compilers(builder.pid):
        time.sleep(0.02)
    assert compilers(builder.pid) == {}
    sources = ExtensionSources(
        name="killed",
        cpp_sources="torch::Tensor f(torch::Tensor x);",
        cuda_sources=cuda,
        functions=("f",),
    )
    assert not build(sources, options=fast_options).cached
    assert build(sources, options=fast_options).cached
