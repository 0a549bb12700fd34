"""A warm parent process and its confined children.

`import torch` costs about a second, so one process imports it once and forks a child per job. The child
confines itself (`confine`) before it reads its first message. See `supervise.Child` for what the
supervising side sees and enforces.
"""

import contextlib
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict

from dice.errors import SandboxError
from dice.sandbox import wire
from dice.sandbox.records import Limits
from dice.sandbox.supervise import Child

logger = logging.getLogger(__name__)

_KEPT_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "DICE_CACHE", "VIRTUAL_ENV")


def weights_cache() -> str | None:
    """The user's folder of weights from the hub, without the token beside it; None where there is none.

    Problems that load pretrained weights find those that are there already.
    """
    home = os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    path = os.path.realpath(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub"))
    return path if os.path.isdir(path) else None


def clean_environment(home: str) -> dict[str, str]:
    """What a child sees of the environment: no secrets, one thread per library, an empty home."""
    environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    cache = weights_cache()
    weights = {} if cache is None else {"HF_HUB_CACHE": cache}
    return {
        **environment,
        **threads,
        **weights,
        "HF_HUB_OFFLINE": "1",
        "HOME": home,
        "TMPDIR": home,
        "PYTHONPATH": package,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
    }


class Zygote:
    """One warm parent. Threads may share it. Use as a context manager, or call `close`.

    `preload` names modules to import, or "module:function" to call a function without arguments;
    neither may start threads.

    Raises SandboxError when it cannot be started or has died.
    """

    def __init__(
        self,
        preload: tuple[str, ...] = (),
        *,
        python_path: tuple[str, ...] = (),
        start_timeout_s: float = 120.0,
    ) -> None:
        self.root = tempfile.mkdtemp(prefix="dice-sandbox-")
        """Holds the children's directories; goes when the parent ends, however that comes about."""
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [
            *(sys.executable, "-P", "-m", "dice.sandbox.zygote_server"),
            *(str(theirs.fileno()), json.dumps(preload)),
        ]
        environment = clean_environment(self.root)
        environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], *python_path])
        with tempfile.TemporaryFile() as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[theirs.fileno()],
                env=environment,
                cwd=self.root,
            )
            theirs.close()
            self._control = ours
            ours.settimeout(start_timeout_s)
            try:
                ready = ours.recv(16)
            except OSError:
                ready = b""
            if not ready.startswith(b"ready "):
                errors.seek(0)
                detail = errors.read()[-800:].decode(errors="replace").strip()
                self.close()
                raise SandboxError(f"the warm parent process did not start: {detail}")
        ours.settimeout(None)
        threads = int(ready.split()[1])
        if threads > 1:
            # a fork copies one thread: locks that the others held stay locked in the child
            logger.warning("a preloaded module started %d threads in the warm parent", threads - 1)

    def spawn(
        self,
        entry: str,
        *,
        limits: Limits,
        readable: tuple[str, ...] = (),
        writable: tuple[str, ...] = (),
        private: tuple[str, ...] = (),
        gpu: int | None = None,
    ) -> Child:
        """Fork a child that runs `entry` ("module:function", called with a `wire.Channel`).

        It may write in its own new directory and `writable`; reading under `private` is recorded as
        an attempt. With `gpu` it may use that GPU, and its memory is limited by the watchdog alone.
        Raises SandboxError.
        """
        directory = os.path.realpath(tempfile.mkdtemp(dir=self.root, prefix="child-"))
        ours, theirs = socket.socketpair()
        out, out_write = os.pipe()
        err, err_write = os.pipe()
        report, report_write = os.pipe()
        cache = weights_cache()
        request = {
            "entry": entry,
            "directory": directory,
            "limits": asdict(limits),
            "readable": readable if cache is None else (*readable, cache),
            "writable": writable,
            "gpu": gpu,
        }
        passed = [theirs.fileno(), out_write, err_write, report_write]
        try:
            with self._lock:
                wire.send_with_descriptors(self._control, request, passed)
        except OSError as error:
            shutil.rmtree(directory, ignore_errors=True)
            for descriptor in (out, err, report):
                os.close(descriptor)
            ours.close()
            raise SandboxError(f"the warm parent process has died: {error}") from error
        finally:
            theirs.close()
            for descriptor in (out_write, err_write, report_write):
                os.close(descriptor)
        return Child(
            sock=ours,
            out=out,
            err=err,
            report=report,
            directory=directory,
            limits=limits,
            private=private,
            gpu=gpu is not None,
        )

    def close(self) -> None:
        """End the parent and every child it still has."""
        self._control.close()
        try:
            self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self) -> "Zygote":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            if self._process.poll() is None:
                self.close()
