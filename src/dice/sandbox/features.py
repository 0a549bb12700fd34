"""What this machine protects against, found out by trying."""

import os

from dice.sandbox import landlock, seccomp, syscalls
from dice.sandbox.records import Features

_MISSING = {
    "landlock": "a candidate can read and write any file that you can",
    "seccomp": "a candidate can start processes, open sockets and send signals",
    "seccomp_record": "an attempt to start a process or write outside may go unnoticed",
    "network_refusal": "a candidate can reach the network",
    "process_namespace": "a compiler's orphaned processes may outlive it",
}


def features() -> Features:
    """Protections of this machine, probed in throw-away children. Starts nothing that lasts."""
    active = ["resource_limits", "private_directory", "clean_environment", "watchdog"]
    missing: dict[str, str] = {}

    def note(name: str, works: bool) -> None:
        if works:
            active.append(name)
        else:
            missing[name] = _MISSING[name]

    note("landlock", landlock.abi() > 0)
    note("seccomp", _in_child(lambda: _install_filter(notify=False)))
    note("seccomp_record", _in_child(lambda: _install_filter(notify=True)))
    note("network_refusal", "seccomp" in active or landlock.abi() >= 4)
    wanted = syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNET
    note("process_namespace", _in_child(lambda: syscalls.unshare(wanted)))
    return Features(active=tuple(active), missing=missing)


def _install_filter(*, notify: bool) -> None:
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install(notify=notify)


def _in_child(probe: object) -> bool:
    if not syscalls.IS_SUPPORTED:
        return False
    pid = os.fork()
    if pid == 0:
        try:
            probe()  # type: ignore[operator]
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0
