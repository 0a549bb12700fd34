"""What `dice doctor` finds out: one record for each thing that judging needs or can use."""

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dice.errors import DiceError

BACKENDS = "Backends"
_COMPILER, _GPU, _SANDBOX, _REST = "CPU backend", "GPU backend", "Sandbox", "Else"
_MIN_GXX = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at. `state`: "ok", "missing" (an option less) or "broken" (needed, not there)."""

    section: str
    name: str
    state: str
    text: str
    hint: str = ""
    """How to get it, or what its absence allows."""


def examine() -> list[Finding]:
    """Look at everything; about a second."""
    python, torch, cuda_build = _python(), *_torch()
    compiler, toolkit, driver = _compiler(), _toolkit(), _driver()
    cpu_needs = [python, torch, compiler[0]]
    gpu_needs = [*cpu_needs, cuda_build, *toolkit[:2], driver]
    return [
        _backend("simt", "judges on the CPU; measures no speed", cpu_needs),
        _backend("cuda", "judges and times on a GPU", gpu_needs),
        *(python, torch, *compiler),
        *(driver, cuda_build, *toolkit),
        *_sandbox(),
        *(_cache(), _ray()),
    ]


def _backend(name: str, what: str, needs: list[Finding]) -> Finding:
    lacking = [one.name for one in needs if one.state != "ok"]
    if not lacking:
        return Finding(section=BACKENDS, name=name, state="ok", text=what)
    text = f"does not work here: lacks {', '.join(lacking)} (below)"
    state = "broken" if name == "simt" else "missing"
    return Finding(section=BACKENDS, name=name, state=state, text=text)


def _python() -> Finding:
    return Finding(
        section=_COMPILER,
        name="Python",
        state="ok",
        text=f"{platform.python_version()} on {platform.system()} {platform.release()}",
    )


def _torch() -> tuple[Finding, Finding]:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        hint = "pip install torch"
        lost = Finding(section=_COMPILER, name="torch", state="broken", text="none", hint=hint)
        return lost, Finding(section=_GPU, name="torch for CUDA", state="missing", text="no torch")
    text = (Path(spec.origin).parent / "version.py").read_text()
    version = re.search(r"__version__ = '([^']*)'", text)
    cuda = re.search(r"^cuda[^=]*= '([^']*)'", text, re.MULTILINE)
    torch = Finding(
        section=_COMPILER,
        name="torch",
        state="ok",
        text=f"{version[1] if version else 'unknown version'} in {Path(spec.origin).parent}",
    )
    build = Finding(
        section=_GPU,
        name="torch for CUDA",
        state="ok" if cuda else "missing",
        text=f"built for CUDA {cuda[1]}" if cuda else "this torch is built for the CPU alone",
        hint="" if cuda else "install PyTorch's build for CUDA, as its installation guide shows",
    )
    return torch, build


def _compiler() -> list[Finding]:
    from dice.toolchain.compiler import INSTALL_HINT, compiler_identity, find_compiler

    try:
        program = find_compiler()
        identity = compiler_identity(program).splitlines()[-1]
    except DiceError as error:
        return [
            Finding(section=_COMPILER, name="g++", state="broken", text="none", hint=str(error))
        ]
    shown = _output([str(program), "-dumpfullversion", "-dumpversion"]) or ""
    version = re.match(r"\d+", shown)
    recent = version is not None and int(version[0]) >= _MIN_GXX
    return [
        Finding(
            section=_COMPILER,
            name="g++",
            state="ok" if recent else "broken",
            text=f"{identity}, {program}",
            hint="" if recent else INSTALL_HINT,
        ),
        _header(),
    ]


def _header() -> Finding:
    from dice.toolchain import prelude
    from dice.toolchain.source import BuildOptions

    try:
        path = prelude.header_path(BuildOptions())
    except (DiceError, ImportError) as error:
        text = f"cannot be looked for: {error}"
        return Finding(section=_COMPILER, name="precompiled header", state="missing", text=text)
    if path.exists():
        text = f"{path.stat().st_size >> 20} MiB, {path}"
        return Finding(section=_COMPILER, name="precompiled header", state="ok", text=text)
    return Finding(
        section=_COMPILER,
        name="precompiled header",
        state="missing",
        text="not built yet",
        hint="the first verification builds it, in half a minute or so",
    )


def _toolkit() -> list[Finding]:
    from dice.toolchain.cuda import layout
    from dice.toolchain.nvcc import find_nvcc
    from dice.verify.sanitizer import find_sanitizer

    install = "install the CUDA toolkit (developer.nvidia.com/cuda-downloads) or set CUDA_HOME"
    wheels = "or pip install nvidia-cuda-runtime nvidia-cuda-nvrtc"
    try:
        include, nvrtc = layout.cuda_include(), layout.nvrtc_library()
    except ImportError:
        include = nvrtc = None
    nvcc, sanitizer = find_nvcc(), find_sanitizer()
    release = (
        re.search(r"release ([\d.]+)", _output([str(nvcc), "--version"]) or "") if nvcc else None
    )

    def found(name: str, path: Path | None, text: str, hint: str) -> Finding:
        if path is None:
            return Finding(section=_GPU, name=name, state="missing", text="none", hint=hint)
        return Finding(section=_GPU, name=name, state="ok", text=text)

    return [
        found("CUDA headers", include, str(include), f"{install}, {wheels}"),
        found("NVRTC", nvrtc, str(nvrtc), f"{install}, {wheels}"),
        found(
            "nvcc",
            nvcc,
            f"{release[1] if release else 'unknown version'}, {nvcc}",
            f"{install}: without it, sources that only nvcc can take are not compiled",
        ),
        found(
            "compute-sanitizer", sanitizer, str(sanitizer), f"{install}; only --sanitize uses it"
        ),
    ]


def _driver() -> Finding:
    tool = shutil.which("nvidia-smi") or "/usr/local/nvidia/bin/nvidia-smi"
    fields = "index,name,memory.total,driver_version"
    shown = _output([tool, f"--query-gpu={fields}", "--format=csv,noheader"])
    rows = [line.split(", ") for line in (shown or "").strip().splitlines()]
    rows = [row for row in rows if len(row) == 4]
    if rows:
        gpus = "; ".join(f"{index}: {name}, {memory}" for index, name, memory, _ in rows)
        text = f"{gpus} (driver {rows[0][3]})"
        return Finding(section=_GPU, name="GPU", state="ok", text=text)
    return Finding(
        section=_GPU,
        name="GPU",
        state="missing",
        text="nvidia-smi finds none"
        if shutil.which(tool)
        else "no driver: nvidia-smi is not there",
        hint="needs an NVIDIA GPU and its driver (nvidia.com/drivers); containers need --gpus all",
    )


def _sandbox() -> list[Finding]:
    from dice.sandbox import features

    try:
        found = features()
    except DiceError as error:
        return [Finding(section=_SANDBOX, name="processes", state="broken", text=str(error))]
    active = [
        Finding(section=_SANDBOX, name=name.replace("_", " "), state="ok", text="active")
        for name in found.active
    ]
    missing = [
        Finding(
            section=_SANDBOX,
            name=name.replace("_", " "),
            state="missing",
            text=f"missing: {effect}",
            hint=_HOW.get(name, ""),
        )
        for name, effect in found.missing.items()
    ]
    return active + missing


_HOW = {
    "landlock": "needs Linux 5.13 or newer with lsm=landlock",
    "seccomp": "needs seccomp filters in the kernel, and a container that allows them",
    "seccomp_record": "needs Linux 5.5 or newer, and a container that allows notifications",
    "network_refusal": "comes with seccomp, or with Linux 6.7 and Landlock",
    "process_namespace": "needs user namespaces (sysctl kernel.unprivileged_userns_clone=1)",
}


def _cache() -> Finding:
    from dice.toolchain.cache import SIZE_LIMIT_MIB, cache_root

    root = cache_root()
    used = 0
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                used += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except OSError:
                continue
    there = root
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    tight = free < 4 << 30
    return Finding(
        section=_REST,
        name="cache",
        state="missing" if tight else "ok",
        text=f"{root}: {used >> 20} MiB used (each kind of build at most {SIZE_LIMIT_MIB} MiB), "
        f"{free >> 30} GiB free",
        hint="little room: set DICE_CACHE to a folder on another disk" if tight else "",
    )


def _ray() -> Finding:
    try:
        version = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        hint = "pip install 'dice-cuda[ray]', to verify on many machines"
        return Finding(section=_REST, name="Ray", state="missing", text="none", hint=hint)
    return Finding(section=_REST, name="Ray", state="ok", text=version)


def _output(command: list[str]) -> str | None:
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return shown.stdout
