"""`forward.cpp` compiled for this machine's CPU, once per machine and version: seconds, then cached."""

import ctypes
import logging
import platform
from ctypes import c_float, c_int64, c_void_p
from functools import cache
from pathlib import Path

from dice.errors import ToolchainError
from dice.toolchain.cache import Cache, cache_root, digest
from dice.toolchain.compiler import compiler_identity, find_compiler, run_own

_SOURCE = Path(__file__).parent / "forward.cpp"
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fopenmp", "-fPIC", "-shared")
_KIND, _FILE = "native", "forward.so"
_logger = logging.getLogger(__name__)


def _fields(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


class Layer(ctypes.Structure):
    """As in forward.cpp; so are the following."""

    _fields_ = _fields(
        c_void_p,
        "qkv out gate_up down qkv_bias out_bias input_norm post_norm q_norm k_norm keys values",
    )


class Model(ctypes.Structure):
    _fields_ = [
        *_fields(c_int64, "hidden inner heads kv_heads head_dim vocabulary capacity layers"),
        ("eps", c_float),
        *_fields(c_void_p, "layer embedding norm cosine sine head"),
    ]


class Step(ctypes.Structure):
    _fields_ = [
        *_fields(c_int64, "tokens blocks wanted threads"),
        *_fields(c_void_p, "ids rows positions wanted_at block scratch logits"),
    ]


@cache
def load_library() -> ctypes.CDLL | None:
    """The compiled functions, or `None` with a warning where they cannot be compiled."""
    try:
        library = ctypes.CDLL(str(_built()))
    except (ToolchainError, OSError) as error:
        _logger.warning("decoding takes twice as long, without the compiled forward: %s", error)
        return None
    library.dice_scratch.restype = c_int64
    return library


def _built() -> Path:
    compiler = find_compiler()
    cpu = "".join(
        line for line in _cpu_description().splitlines() if line.startswith(("model name", "flags"))
    )
    key = digest(
        _SOURCE.read_bytes(), *_FLAGS, compiler_identity(compiler), platform.machine(), cpu
    )
    store = Cache(cache_root())
    found = store.find(_KIND, key)
    if found is None:
        with store.workspace() as folder:
            ran = run_own(
                [compiler, *_FLAGS, "-o", folder / _FILE, _SOURCE], cwd=folder, timeout_s=120.0
            )
            if ran.returncode != 0:
                raise ToolchainError(
                    f"{compiler} on {_SOURCE.name}: {ran.output[-500:] or 'timeout'}"
                )
            found = store.publish(folder, _KIND, key)
    return found / _FILE


def _cpu_description() -> str:
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
