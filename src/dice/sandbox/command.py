"""Run one command (a compiler, say) with limits, and capture what it says."""

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict

from dice.errors import SandboxError
from dice.sandbox import gpu as nvidia
from dice.sandbox.confine import SYSTEM_READABLE
from dice.sandbox.records import Access, ChildResult, Limits
from dice.sandbox.zygote import clean_environment

_POLL_S = 0.05


def run(
    argv: Sequence[str],
    *,
    limits: Limits | None = None,
    cwd: str | None = None,
    readable: Sequence[str] = (),
    writable: Sequence[str] = (),
    executable: Sequence[str] = (),
    environment: dict[str, str] | None = None,
    gpu: bool = False,
) -> ChildResult:
    """Run `argv` to its end or to a limit; never raises for what the command does.

    It reads the system's directories, `cwd`, `readable` and `writable`; it runs programs of the system's
    directories, of `argv[0]`'s and of `executable`; it writes in `writable`, `cwd`
    and a private temporary directory that is its home; it has no network and sees no environment of
    the user's. With `gpu` it may use the GPUs, and its address space is not limited. All its processes end with it. Raises SandboxError when nothing could be started.
    """
    limits = limits or Limits()
    home = tempfile.mkdtemp(prefix="dice-run-")
    directory = cwd or home
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    programs = [os.path.dirname(os.path.realpath(shutil.which(argv[0]) or argv[0]))]
    access = Access(
        readable=(
            *(*SYSTEM_READABLE, "/proc", "/etc/alternatives", *readable),
            *(nvidia.READABLE if gpu else ()),
        ),
        executable=("/usr", "/bin", "/lib", "/lib64", *programs, *executable),
        writable=(
            *("/dev/null", home, directory, *writable),
            *(nvidia.device_files() if gpu else ()),
        ),
    )
    request = {
        "argv": list(argv),
        "package": package,
        "limits": asdict(limits),
        "access": asdict(access),
        "gpu": gpu,
    }
    launcher = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher.py")
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", launcher, json.dumps(request)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=directory,
            env={**clean_environment(home), **(environment or {})},
            start_new_session=True,
        )
    except OSError as error:
        shutil.rmtree(home, ignore_errors=True)
        raise SandboxError(f"cannot start a sandboxed command: {error}") from error
    try:
        return _watch(process, limits, started)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        shutil.rmtree(home, ignore_errors=True)


def _watch(process: "subprocess.Popen[bytes]", limits: Limits, started: float) -> ChildResult:
    streams: dict[str, bytearray] = {"out": bytearray(), "err": bytearray()}
    limit: str | None = None
    with selectors.DefaultSelector() as selector:
        assert process.stdout is not None
        assert process.stderr is not None
        selector.register(process.stdout, selectors.EVENT_READ, "out")
        selector.register(process.stderr, selectors.EVENT_READ, "err")
        while selector.get_map():
            for key, _ in selector.select(_POLL_S):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                room = limits.output_kib * 1024 - len(streams[key.data])
                streams[key.data] += data[: max(0, room)]
            if limit is None:
                if time.monotonic() - started > limits.wall_s:
                    limit = "wall"
                elif _count_descendants(process.pid) > limits.threads:
                    limit = "threads"
                if limit is not None:
                    os.killpg(process.pid, signal.SIGKILL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    if limit is None and killed_by == signal.SIGXCPU:
        limit = "cpu"
    return ChildResult(
        exit_code=None if killed_by is not None else os.WEXITSTATUS(status),
        signal=killed_by,
        timed_out=limit in ("wall", "cpu"),
        limit=limit,
        peak_memory_mib=usage.ru_maxrss / 1024,
        wall_s=time.monotonic() - started,
        cpu_s=usage.ru_utime + usage.ru_stime,
        stdout=streams["out"].decode(errors="replace"),
        stderr=streams["err"].decode(errors="replace"),
    )


def _count_descendants(pid: int, depth: int = 0) -> int:
    count = 0
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = [int(word) for word in file.read().split()]
    except OSError:
        return 0
    for child in children:
        count += 1 + (_count_descendants(child, depth + 1) if depth < 8 else 0)
    return count
