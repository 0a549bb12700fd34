"""Landlock: the kernel's own allow-list of paths for an unprivileged process (Linux 5.13).

What is not listed can be neither read nor written. With ABI 4 TCP is refused, with ABI 6 signals and
abstract sockets outside the sandbox. The restriction also keeps the child from tracing others. It
cannot be undone and is inherited by every descendant.
"""

import ctypes
import os
import stat
import struct

from dice.sandbox import syscalls
from dice.sandbox.records import Access

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_READ = _READ_FILE | _READ_DIR
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_RIGHTS_OF_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}


def abi() -> int:
    """Version of Landlock in this kernel, 0 when there is none."""
    if not syscalls.IS_SUPPORTED:
        return 0
    try:
        return syscalls.call(
            syscalls.LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1)
        )
    except OSError:
        return 0


def restrict(access: Access, *, network: bool = False) -> None:
    """Confine the calling thread (call before starting others). Raises OSError."""
    version = abi()
    if version == 0:
        raise OSError("no Landlock in this kernel")
    handled = (1 << _RIGHTS_OF_ABI[min(version, 5)]) - 1
    net = 0b11 if version >= 4 and not network else 0
    scoped = 0b11 if version >= 6 else 0
    attribute = struct.pack("<QQQ", handled, net, scoped)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = syscalls.call(
        syscalls.LANDLOCK_CREATE_RULESET, attribute, ctypes.c_size_t(size), ctypes.c_uint32(0)
    )
    try:
        for paths, rights in (
            (access.readable, _READ),
            (access.executable, _READ | _EXECUTE),
            (access.writable, handled & ~_EXECUTE),
        ):
            for path in paths:
                _allow(ruleset, path, rights & handled)
        syscalls.call(syscalls.LANDLOCK_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= _FILE_RIGHTS
        syscalls.call(
            syscalls.LANDLOCK_ADD_RULE,
            ctypes.c_int(ruleset),
            ctypes.c_int(1),
            struct.pack("<Qi", rights, handle),
            ctypes.c_uint32(0),
        )
    finally:
        os.close(handle)
