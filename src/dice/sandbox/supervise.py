"""The supervisor of one child: talks to it, answers its watched system calls, enforces its limits.

Everything that decides is here, outside the child: clocks, memory and thread counts are read from the
kernel, incidents come from the kernel's notifications, output is capped while it is read.
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import time

from dice.errors import SandboxError
from dice.sandbox import gpu as nvidia
from dice.sandbox import seccomp, wire
from dice.sandbox.records import ChildResult, Incident, Limits

_MIB = 1 << 20
_POLL_S = 0.05


class Child:
    """A running worker. Use as a context manager: leaving it ends the worker and removes its files."""

    def __init__(
        self,
        *,
        sock: socket.socket,
        out: int,
        err: int,
        report: int,
        directory: str,
        limits: Limits,
        private: tuple[str, ...] = (),
        gpu: bool = False,
    ) -> None:
        self.directory = directory
        self.active: tuple[str, ...] = ()
        self.missing: tuple[str, ...] = ()
        self._sock, self._report = sock, report
        self._streams = {out: bytearray(), err: bytearray()}
        self._out, self._err = out, err
        self._limits = limits
        self.private = private
        """Reading below these paths is recorded as an attempt."""
        self._gpu = gpu
        self._decoder = wire.Decoder()
        self._incidents: list[Incident] = []
        self._listener: int | None = None
        self._ending: dict[str, float] | None = None
        self._report_text = b""
        self._pid: int | None = None
        self._pidfd: int | None = None
        self._limit: str | None = None
        self._killed = False
        self._closed = False
        self._base_memory_mib = 0.0
        self._started = time.monotonic()
        self._next_poll = 0.0
        self._cpu_deadline_s: float | None = None
        self._selector = selectors.DefaultSelector()
        self._greet()

    # -- talking ---------------------------------------------------------------------------------

    def send(self, message: wire.Message) -> None:
        """Nothing happens if the child is gone: `receive` tells."""
        with contextlib.suppress(OSError):
            self._sock.settimeout(10.0)
            self._sock.sendall(wire.encode(message))

    def receive(self, timeout_s: float, *, cpu_s: float | None = None) -> wire.Message | None:
        """The next message. None once the child has ended.

        Past `timeout_s` of wall time, or `cpu_s` of its own processor time (which does not depend on
        how busy the machine is), it is made to end. Raises ValueError when it sends bytes that are no
        message.
        """
        deadline = time.monotonic() + timeout_s
        self._cpu_deadline_s = None if cpu_s is None else self._cpu_s() + cpu_s
        while True:
            message = self._decoder.next()
            if message is not None:
                return message
            if self._ending is not None:
                return None
            if time.monotonic() > deadline and not self._killed:
                self._kill("wall")
            self._pump(min(_POLL_S, max(0.0, deadline - time.monotonic())))

    def finish(self, timeout_s: float = 2.0) -> ChildResult:
        """End the conversation, wait, kill if need be, and say how it went."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + timeout_s
        while self._ending is None:
            if time.monotonic() > deadline and not self._killed:
                self._kill(None)
            self._pump(_POLL_S)
        self._pump(0.0)
        return self._result()

    @property
    def incidents(self) -> tuple[Incident, ...]:
        return tuple(self._incidents)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker and remove its files. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._ending is None:
            self._kill(None)
            end = time.monotonic() + 5.0
            while self._ending is None and time.monotonic() < end:
                self._pump(_POLL_S)
        self._selector.close()
        self._sock.close()
        for descriptor in (self._out, self._err, self._report, self._listener, self._pidfd):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- watching --------------------------------------------------------------------------------

    def _greet(self) -> None:
        self._selector.register(self._report, selectors.EVENT_READ)
        for stream in self._streams:
            os.set_blocking(stream, False)
            self._selector.register(stream, selectors.EVENT_READ)
        self._sock.settimeout(20.0)
        try:
            hello, descriptors = wire.receive_with_descriptors(self._sock)
        except OSError as error:
            self._selector.close()
            raise SandboxError(f"a worker did not start: {error}") from error
        if hello is None:
            while self._ending is None:
                self._pump(_POLL_S)
            detail = bytes(self._streams[self._err]).decode(errors="replace")[-500:]
            raise SandboxError(f"a worker did not start: {detail or self._result()}")
        self.active, self.missing = tuple(hello["active"]), tuple(hello["missing"])
        while self._pid is None and self._ending is None:
            self._pump(_POLL_S)
        if descriptors:
            self._listener = descriptors[0]
            self._selector.register(self._listener, selectors.EVENT_READ)
        self._sock.settimeout(None)
        self._sock.sendall(b"g")
        self._base_memory_mib = self._memory_mib()
        self._selector.register(self._sock, selectors.EVENT_READ)

    def _pump(self, wait_s: float) -> None:
        for key, _ in self._selector.select(wait_s):
            source = key.fileobj
            if source is self._sock:
                self._read_socket()
            elif source == self._listener:
                self._serve_call()
            elif source == self._report:
                self._read_report()
            elif isinstance(source, int):
                self._read_stream(source)
        if time.monotonic() >= self._next_poll:
            self._next_poll = time.monotonic() + _POLL_S
            self._check_limits()

    def _read_socket(self) -> None:
        try:
            data = self._sock.recv(1 << 20)
        except OSError:
            data = b""
        if data:
            self._decoder.feed(data)
        else:
            self._selector.unregister(self._sock)

    def _read_stream(self, stream: int) -> None:
        try:
            data = os.read(stream, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(stream)
            return
        room = self._limits.output_kib * 1024 - len(self._streams[stream])
        self._streams[stream] += data[: max(0, room)]

    def _read_report(self) -> None:
        data = os.read(self._report, 4096)
        if not data:
            self._selector.unregister(self._report)
            if self._ending is None:
                self._ending = {"status": float(signal.SIGKILL)}
            return
        self._report_text += data
        *lines, self._report_text = self._report_text.split(b"\n")
        for line in lines:
            record = json.loads(line)
            if "pid" in record:
                self._pid = int(record["pid"])
                with contextlib.suppress(OSError):
                    self._pidfd = os.pidfd_open(self._pid)
            else:
                self._ending = record

    def _serve_call(self) -> None:
        assert self._listener is not None
        incident = seccomp.serve(self._listener, self._judge_path)
        if incident is None:
            if self._ending is not None:
                self._selector.unregister(self._listener)
            return
        if len(self._incidents) < 64:
            self._incidents.append(incident)

    def _judge_path(self, path: str, writes: bool) -> Incident | None:
        inside = path == self.directory or path.startswith(self.directory + "/")
        own = f"/proc/{self._pid}/"
        if inside or path == "/dev/null":
            return None
        if path.startswith(own + "task/") and path.endswith("/comm"):
            return None  # the C library naming a thread; Landlock refuses it all the same
        if self._gpu and nvidia.is_device(path):
            return None
        probed = nvidia.is_probed(path) or self.directory.startswith(path + "/")
        if self._gpu and probed and "landlock" in self.active:
            return None  # Landlock refuses what exists
        if writes:
            return Incident(kind="write_outside", detail=path)
        pieces = path.split("/")
        if len(pieces) > 2 and pieces[1] == "proc" and pieces[2].isdigit():
            memory = path.startswith(own) and "/mem" not in path
            return None if memory else Incident(kind="memory_snooping", detail=path)
        if any(path == root or path.startswith(root + "/") for root in self.private):
            return Incident(kind="read_outside", detail=path)
        return None

    def _check_limits(self) -> None:
        if self._pid is None or self._ending is not None or self._killed:
            return
        memory_mib = self._memory_mib() - self._base_memory_mib
        if memory_mib > self._limits.memory_mib:
            self._kill("memory")
        elif self._cpu_deadline_s is not None and self._cpu_s() > self._cpu_deadline_s:
            self._kill("cpu")
        elif self._threads() > self._limits.threads:
            self._kill("threads")
        elif _directory_mib(self.directory) > self._limits.disk_mib:
            self._kill("disk")

    def _memory_mib(self) -> float:
        if self._gpu:
            return _private_mib(self._pid)
        try:
            with open(f"/proc/{self._pid}/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / _MIB
        except (OSError, IndexError):
            return 0.0

    def _cpu_s(self) -> float:
        try:
            with open(f"/proc/{self._pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError):
            return 0.0

    def _threads(self) -> int:
        try:
            return len(os.listdir(f"/proc/{self._pid}/task"))
        except OSError:
            return 0

    def _kill(self, limit: str | None) -> None:
        self._killed = True
        self._limit = self._limit or limit
        if self._pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            if "seccomp" not in self.active:
                os.killpg(self._pid, signal.SIGKILL)

    def _result(self) -> ChildResult:
        assert self._ending is not None
        status = int(self._ending["status"])
        killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        limit = self._limit
        if limit is None and killed_by == signal.SIGXCPU:
            limit = "cpu"
        return ChildResult(
            exit_code=None if killed_by is not None else os.WEXITSTATUS(status),
            signal=killed_by,
            timed_out=limit in ("wall", "cpu"),
            limit=limit,
            peak_memory_mib=self._ending.get("peak_memory_mib", 0.0),
            wall_s=time.monotonic() - self._started,
            cpu_s=self._ending.get("cpu_s", 0.0),
            stdout=bytes(self._streams[self._out]).decode(errors="replace"),
            stderr=bytes(self._streams[self._err]).decode(errors="replace"),
            incidents=self.incidents,
        )


def _private_mib(pid: int | None) -> float:
    """Memory of a process's own: CUDA maps much that is none."""
    total = 0
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1])
    return total / 1024


def _directory_mib(directory: str) -> float:
    total = 0
    with contextlib.suppress(OSError):
        for root, _, names in os.walk(directory):
            for name in names[:10000]:
                with contextlib.suppress(OSError):
                    total += os.lstat(os.path.join(root, name)).st_blocks * 512
    return total / _MIB
