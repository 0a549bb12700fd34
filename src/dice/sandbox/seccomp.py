"""seccomp: a filter over the child's system calls, and the supervisor's end of it.

A worker needs threads and files, and never a process, a program, a socket or another process's
memory. Calls of that sort stop in the kernel and are reported to the supervisor, which refuses them and
writes down what was tried; the child cannot touch that record. Opening a file is reported too, so that
an attempt to write outside the private directory is seen even where Landlock alone would only refuse it.
Numbers are those of x86-64 Linux.
"""

import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass

from dice.sandbox import syscalls
from dice.sandbox.records import Incident

_ALLOW, _KILL, _NOTIFY = 0x7FFF0000, 0x80000000, 0x7FC00000
_ERRNO = 0x00050000
_ARCH_X86_64 = 0xC000003E
_NOTIF_SIZE, _RESPONSE_SIZE = 80, 24
_IOCTL_RECV = 0xC0502100
_IOCTL_SEND = 0xC0182101
_IOCTL_VALID = 0x40082102
_CONTINUE = 1

_REFUSED: dict[int, tuple[str, str]] = {
    56: ("process", "clone"),
    57: ("process", "fork"),
    58: ("process", "vfork"),
    59: ("exec", "execve"),
    322: ("exec", "execveat"),
    41: ("network", "socket"),
    62: ("signal", "kill"),
    129: ("signal", "rt_sigqueueinfo"),
    234: ("signal", "tgkill"),
    297: ("signal", "rt_tgsigqueueinfo"),
    424: ("signal", "pidfd_send_signal"),
    101: ("memory_snooping", "ptrace"),
    310: ("memory_snooping", "process_vm_readv"),
    311: ("memory_snooping", "process_vm_writev"),
    438: ("memory_snooping", "pidfd_getfd"),
    272: ("privilege", "unshare"),
    308: ("privilege", "setns"),
    165: ("privilege", "mount"),
    321: ("privilege", "bpf"),
    298: ("privilege", "perf_event_open"),
}
"""Refused with EPERM and recorded."""

_SILENT: dict[int, int] = {
    435: errno.ENOSYS,  # clone3: the C library then uses clone, whose flags a filter can read
    200: errno.EPERM,  # tkill
    317: errno.EPERM,  # seccomp
    425: errno.ENOSYS,  # io_uring_setup: would open files behind the filter's back
    323: errno.EPERM,  # userfaultfd
    29: errno.EPERM,  # shmget, semget, msgget: would outlive the child
    64: errno.EPERM,
    68: errno.EPERM,
    240: errno.EPERM,  # mq_open
    248: errno.EPERM,  # add_key, request_key, keyctl
    249: errno.EPERM,
    250: errno.EPERM,
}

_PATHS: dict[int, tuple[str, tuple[int, ...], int | None]] = {
    # name, arguments that hold paths, argument that holds the open flags
    2: ("open", (0,), 1),
    85: ("creat", (0,), None),
    257: ("openat", (1,), 2),
    76: ("truncate", (0,), None),
    82: ("rename", (0, 1), None),
    83: ("mkdir", (0,), None),
    84: ("rmdir", (0,), None),
    86: ("link", (1,), None),
    87: ("unlink", (0,), None),
    88: ("symlink", (1,), None),
    90: ("chmod", (0,), None),
    258: ("mkdirat", (1,), None),
    259: ("mknodat", (1,), None),
    263: ("unlinkat", (1,), None),
    264: ("renameat", (1, 3), None),
    265: ("linkat", (3,), None),
    266: ("symlinkat", (2,), None),
    268: ("fchmodat", (1,), None),
    316: ("renameat2", (1, 3), None),
}
_OPENAT2 = 437
_CLONE_THREAD = 0x10000
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def _instruction(code: int, jump_true: int, jump_false: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, jump_true, jump_false, value)


def _load(offset: int) -> bytes:
    return _instruction(0x20, 0, 0, offset)


def _return(value: int) -> bytes:
    return _instruction(0x06, 0, 0, value)


_GPU_SILENT: dict[int, int] = {42: errno.ECONNREFUSED}
"""connect: CUDA must be given a local socket with a name, which nobody connects to."""
_SOCKET, _AF_UNIX = 41, 1


def _program(*, notify: bool, worker: bool, gpu: bool) -> bytes:
    recorded = _NOTIFY if notify else _ERRNO | errno.EPERM
    out = [
        _load(4),
        _instruction(0x15, 1, 0, _ARCH_X86_64),
        _return(_KILL),
        _load(0),
        _instruction(0x35, 0, 1, 0x40000000),  # the x32 calls
        _return(_KILL),
    ]

    def rule(number: int, body: list[bytes]) -> None:
        out.append(_instruction(0x15, 0, len(body), number))
        out.extend(body)

    def unless_own_pid() -> list[bytes]:
        return [
            _load(16),
            _instruction(0x15, 0, 1, os.getpid()),
            _return(_ALLOW),
            _return(recorded),
        ]

    for number, error in (_SILENT | (_GPU_SILENT if gpu else {})).items():
        if worker or number not in (200, 435):
            rule(number, [_return(_ERRNO | error)])
    for number, (kind, _) in _REFUSED.items():
        if not worker and kind in ("process", "exec", "signal"):
            continue  # a compiler driver starts programs; its process namespace contains them
        if number == 56:
            thread = [_load(16), _instruction(0x45, 0, 1, _CLONE_THREAD), _return(_ALLOW)]
            rule(number, [*thread, _return(recorded)])
        elif number == _SOCKET and gpu:
            local = [_load(16), _instruction(0x15, 0, 1, _AF_UNIX), _return(_ALLOW)]
            rule(number, [*local, _return(recorded)])
        elif number in (62, 234):
            rule(number, unless_own_pid())
        else:
            rule(number, [_return(recorded)])
    if worker:
        rule(_OPENAT2, [_return(_ERRNO | errno.ENOSYS)])
        if notify:
            for number in _PATHS:
                rule(number, [_return(_NOTIFY)])
    out.append(_return(_ALLOW))
    return b"".join(out)


def install(*, notify: bool, worker: bool = True, gpu: bool = False) -> int | None:
    """Filter the calling process from here on. Returns the listener for the supervisor when `notify`.

    CUDA makes and names a local socket while it starts, so with `gpu` that succeeds; connecting does not.

    Set PR_SET_NO_NEW_PRIVS first and start no thread before. Raises OSError.
    """
    program = _program(notify=notify, worker=worker, gpu=gpu)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    flags = 1 << 3 if notify else 0
    value = syscalls.call(syscalls.SECCOMP, ctypes.c_uint(1), ctypes.c_uint(flags), header)
    return value if notify else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    pid: int
    number: int
    args: tuple[int, ...]


def serve(listener: int, judge_path: Callable[[str, bool], Incident | None]) -> Incident | None:
    """Answer one reported call; the caller polled the listener. Returns what has to be recorded.

    `judge_path(absolute path, writes)` decides about files; everything else reported is refused.
    """
    request = bytearray(_NOTIF_SIZE)
    try:
        fcntl.ioctl(listener, _IOCTL_RECV, request)
    except OSError:
        return None  # the caller died, or was interrupted, in between
    identity, pid, _, number, _, _, *args = struct.unpack("<QIIiIQ6Q", request)
    call = _Call(pid=pid, number=number, args=tuple(args))
    incident: Incident | None
    if call.number in _PATHS:
        incident = _judge_paths(call, judge_path)
    else:
        kind, name = _REFUSED.get(call.number, ("privilege", f"system call {call.number}"))
        incident = Incident(kind=kind, detail=name)
    refuse = incident is not None and incident.refused
    error = 0
    if refuse:
        error = -(errno.EACCES if call.number in _PATHS else errno.EPERM)
    response = struct.pack("<QqiI", identity, 0, error, 0 if refuse else _CONTINUE)
    try:
        fcntl.ioctl(listener, _IOCTL_SEND, response)
    except OSError:
        return incident
    return incident


def _judge_paths(
    call: _Call, judge_path: Callable[[str, bool], Incident | None]
) -> Incident | None:
    _, path_arguments, flags_argument = _PATHS[call.number]
    writes = True
    if flags_argument is not None:
        writes = bool(call.args[flags_argument] & _WRITE_FLAGS)
    for position in path_arguments:
        directory = None
        if call.number >= 257 and position > 0:
            directory = ctypes.c_int32(call.args[position - 1] & 0xFFFFFFFF).value
        path = _resolve(call.pid, call.args[position], directory)
        incident = judge_path(path, writes) if path is not None else None
        if incident is not None:
            return incident
    return None


def _resolve(pid: int, address: int, directory: int | None) -> str | None:
    """The path a call names, absolute, links followed. None when it cannot be read."""
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            raw = _read_string(memory.fileno(), address)
        text = os.fsdecode(raw)
        base = f"/proc/{pid}/cwd"
        if directory is not None and directory >= 0:
            base = f"/proc/{pid}/fd/{directory}"
        if not text.startswith("/"):
            text = os.path.join(os.readlink(base), text)
        if text.startswith(("/proc/self/", "/proc/thread-self/")):
            own = f"/proc/{_process_of(pid)}/"
            text = own + text.removeprefix("/proc/self/").removeprefix("/proc/thread-self/")
        return os.path.realpath(text)
    except (OSError, ValueError, OverflowError):
        return None


def _process_of(thread: int) -> int:
    """The process that a thread belongs to."""
    with open(f"/proc/{thread}/status") as status:
        for line in status:
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    return thread


def _read_string(memory: int, address: int) -> bytes:
    out = b""
    while len(out) < 4096:
        step = 256 - (address + len(out)) % 256
        piece = os.pread(memory, step, address + len(out))
        if not piece:
            break
        end = piece.find(b"\0")
        if end >= 0:
            return out + piece[:end]
        out += piece
    return out
