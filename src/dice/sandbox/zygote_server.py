"""The warm parent: imports once, then forks one confined child per request.

Started by `dice.sandbox.zygote`. It never sees a job: a child's channel is an open socket that passes
through here unread, so nothing of one job is in the memory that the next child is a copy of. It stays
single-threaded, because a fork copies one thread only.
"""

import contextlib
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable

from dice.sandbox import confine, wire
from dice.sandbox.records import Access, Limits


def serve(control: socket.socket, preload: list[str]) -> None:
    """Answer spawn requests until the other end closes, then end every child."""
    for name in preload:
        module, _, function = name.partition(":")
        loaded = importlib.import_module(module)
        if function:
            getattr(loaded, function)()
    threads = len(os.listdir("/proc/self/task"))
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    children: dict[int, int] = {}
    control.sendall(f"ready {threads}".encode())
    try:
        while True:
            watched: list[socket.socket | int] = [control, wake_read]
            ready, _, _ = select.select(watched, [], [])
            if wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
                _reap(children)
            if control in ready:
                request, descriptors = wire.receive_with_descriptors(control)
                if request is None:
                    return
                _spawn(control, request, descriptors, children)
    finally:
        for pid in children:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        # also when the judge was killed and could not tidy up
        shutil.rmtree(os.getcwd(), ignore_errors=True)


def _reap(children: dict[int, int]) -> None:
    while children:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        report = children.pop(pid, None)
        if report is None:
            continue
        line = {
            "status": status,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "peak_memory_mib": usage.ru_maxrss / 1024,
        }
        with contextlib.suppress(OSError):
            os.write(report, json.dumps(line).encode() + b"\n")
        os.close(report)


def _spawn(
    control: socket.socket,
    request: wire.Message,
    descriptors: list[int],
    children: dict[int, int],
) -> None:
    channel, out, err, report = descriptors
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            control.close()
            for other in (*children.values(), report):
                os.close(other)
            code = _child(request, channel, out, err)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
    for descriptor in (channel, out, err):
        os.close(descriptor)
    children[pid] = report
    os.write(report, json.dumps({"pid": pid}).encode() + b"\n")


def _child(request: wire.Message, channel: int, out: int, err: int) -> int:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for source, target in ((null, 0), (out, 1), (err, 2)):
        os.dup2(source, target)
    keep = 3
    os.dup2(channel, keep)
    os.closerange(keep + 1, 4096)
    directory = request["directory"]
    os.chdir(directory)
    os.environ["HOME"] = os.environ["TMPDIR"] = directory
    sys.argv = ["worker"]
    module, function = request["entry"].split(":")
    entry: Callable[[wire.Channel], int] = getattr(importlib.import_module(module), function)
    sock = socket.socket(fileno=keep)
    limits = Limits(**request["limits"])
    access = Access(readable=tuple(request["readable"]), writable=(directory, *request["writable"]))
    gpu = request.get("gpu")
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    confined = confine.confine_worker(limits, access, gpu=gpu is not None)
    hello = {"active": confined.active, "missing": confined.missing}
    listener = [] if confined.listener is None else [confined.listener]
    wire.send_with_descriptors(sock, hello, listener)
    if confined.listener is not None:
        os.close(confined.listener)
    sock.recv(1)  # the supervisor is listening from here on
    return entry(wire.Channel(sock))


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    preload = json.loads(sys.argv[2])
    sys.argv = ["zygote"]
    serve(control, preload)


if __name__ == "__main__":
    main()
