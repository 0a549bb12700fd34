"""Workers for the tests of `Standby`."""

import os
import time
from pathlib import Path

from dice.sandbox.wire import Channel
from dice.verify.standby import WARM


def warm(channel: Channel) -> int:
    """Watched system calls before it is warm; then it answers with what it is asked to read."""
    Path("started").write_text(str(os.getpid()))
    channel.send(WARM)
    while (message := channel.receive()) is not None:
        try:
            Path(message["read"]).read_text()
            channel.send({"pid": os.getpid(), "read": True})
        except OSError:
            channel.send({"pid": os.getpid(), "read": False})
    return 0


def ends(channel: Channel) -> int:
    """Never warm."""
    raise RuntimeError("no device")


def slow(channel: Channel) -> int:
    """Warm after half a second."""
    time.sleep(0.5)
    return warm(channel)
