"""Stands between `run` and a command: makes the namespaces, sets the limits, starts the command.

Run as a plain file by an isolated Python without site-packages (about 15 ms), with one JSON argument. Its
own end takes the command's whole process namespace with it.
"""

import contextlib
import json
import os
import signal
import sys
import types
from typing import Any


def _package(root: str) -> None:
    """Make `dice.sandbox` importable without running `dice/__init__`."""
    for name, path in (("dice", root), ("dice.sandbox", os.path.join(root, "sandbox"))):
        module = types.ModuleType(name)
        module.__path__ = [path]
        sys.modules[name] = module


def _namespaces() -> list[str]:
    from dice.sandbox import syscalls

    uid, gid = os.getuid(), os.getgid()
    wanted = syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNET
    try:
        syscalls.unshare(wanted | syscalls.CLONE_NEWIPC)
    except OSError:
        return []
    with contextlib.suppress(OSError):
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    return ["process_namespace", "network_namespace"]


def _command(request: dict[str, Any]) -> None:
    """In the child: confine, then become the command."""
    from dice.sandbox import confine, landlock, seccomp, syscalls
    from dice.sandbox.records import Access, Limits

    limits, access = Limits(**request["limits"]), Access(**request["access"])
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    with contextlib.suppress(OSError):
        landlock.restrict(access)
    with contextlib.suppress(OSError):
        syscalls.drop_capabilities()
    confine.set_limits(limits, processes=True, gpu=bool(request["gpu"]))
    with contextlib.suppress(OSError):
        seccomp.install(notify=False, worker=False)
    argv = [str(word) for word in request["argv"]]
    os.execvp(argv[0], argv)


def main() -> int:
    request = json.loads(sys.argv[1])
    _package(request["package"])
    from dice.sandbox import syscalls

    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    _namespaces()
    receive, report = os.pipe()
    if os.fork() == 0:
        # the first process of the namespace ignores signals, so it is not the command itself
        os.close(receive)
        os.write(report, _wait_for_command(request).to_bytes(4, "little"))
        os._exit(0)
    os.close(report)
    status = int.from_bytes(os.read(receive, 4), "little")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return os.WEXITSTATUS(status)


def _wait_for_command(request: dict[str, Any]) -> int:
    """Start the command, collect orphans, and return the command's wait status."""
    from dice.sandbox import syscalls

    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    command = os.fork()
    if command == 0:
        try:
            _command(request)
        except BaseException as error:
            print(f"{request['argv'][0]}: {error}", file=sys.stderr, flush=True)
        os._exit(127)
    while True:
        pid, status = os.wait()
        if pid == command:
            return status


if __name__ == "__main__":
    sys.exit(main())
