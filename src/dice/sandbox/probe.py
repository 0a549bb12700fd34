"""Tries each kernel feature in a throw-away child and prints the names of those that work, as JSON.

A program of its own (`python -m dice.sandbox.probe`), because the process that asks may have threads, and
such a process had better not fork.
"""

import json
import os
from collections.abc import Callable

from dice.sandbox import landlock, seccomp, syscalls


def main() -> None:
    namespaces = syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNET
    probes: dict[str, Callable[[], object]] = {
        "seccomp": lambda: _install_filter(notify=False),
        "seccomp_record": lambda: _install_filter(notify=True),
        "process_namespace": lambda: syscalls.unshare(namespaces),
    }
    works = [name for name, probe in probes.items() if _in_child(probe)]
    print(json.dumps({"works": works, "landlock_abi": landlock.abi()}))


def _install_filter(*, notify: bool) -> None:
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install(notify=notify)


def _in_child(probe: Callable[[], object]) -> bool:
    if not syscalls.IS_SUPPORTED:
        return False
    pid = os.fork()
    if pid == 0:
        try:
            probe()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


if __name__ == "__main__":
    main()
