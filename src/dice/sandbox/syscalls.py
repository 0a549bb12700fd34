"""The few system calls Python has no function for (Linux x86-64), by number through ctypes."""

import ctypes
import os
import sys

IS_SUPPORTED = sys.platform == "linux" and os.uname().machine == "x86_64"

SECCOMP = 317
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
CAPSET = 126

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x00020000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)

_libc = ctypes.CDLL(None, use_errno=True)


def call(number: int, *args: object) -> int:
    """The system call's value. Raises OSError with its errno."""
    value = int(_libc.syscall(ctypes.c_long(number), *args))
    if value < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return value


def prctl(option: int, value: int = 0) -> None:
    """Raises OSError."""
    zero = ctypes.c_ulong(0)
    if _libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def unshare(flags: int) -> None:
    """New namespaces for the caller. Raises OSError."""
    if _libc.unshare(ctypes.c_int(flags)) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def drop_capabilities() -> None:
    """Empty the effective, permitted and inheritable sets: root keeps its uid and nothing else."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)(*([0] * 6))
    call(CAPSET, ctypes.byref(header), ctypes.byref(data))
