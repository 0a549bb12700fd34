"""What this machine protects against, found out by trying."""

import json
import os
import subprocess
import sys
from functools import lru_cache

from dice.errors import SandboxError
from dice.sandbox.records import Features
from dice.sandbox.zygote import clean_environment

_MISSING = {
    "landlock": "a candidate can read and write any file that you can",
    "seccomp": "a candidate can start processes, open sockets and send signals",
    "seccomp_record": "an attempt to start a process or write outside may go unnoticed",
    "network_refusal": "a candidate can reach the network",
    "process_namespace": "a compiler's orphaned processes may outlive it",
}


@lru_cache(maxsize=1)
def features() -> Features:
    """Protections of this machine, probed once per process in throw-away children (about 0.1 s).

    Raises SandboxError when no child can be started at all.
    """
    command = [sys.executable, "-P", "-m", "dice.sandbox.probe"]
    try:
        probed = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env=clean_environment(os.devnull),
        )
        found = json.loads(probed.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise SandboxError(f"cannot probe the sandbox: {error}") from error
    works = set(found["works"])
    if found["landlock_abi"] > 0:
        works.add("landlock")
    if "seccomp" in works or found["landlock_abi"] >= 4:
        works.add("network_refusal")
    always = ("resource_limits", "private_directory", "clean_environment", "watchdog")
    return Features(
        active=(*always, *(name for name in _MISSING if name in works)),
        missing={name: effect for name, effect in _MISSING.items() if name not in works},
    )
