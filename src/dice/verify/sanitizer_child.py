"""One call of a candidate, from files, in a process that a tool may watch: `python -m ... DIRECTORY`.

The judge's answers come from `script.json`, so nothing is built and nobody is asked.
"""

import json
import os
import sys
from typing import Any

from dice.sandbox.wire import Message


class Script:
    """Stands for the judge's channel: a job, the builds in order, one call."""

    def __init__(self, script: dict[str, Any]) -> None:
        call = {
            "do": "call",
            "index": 0,
            "input": "input_0.bin",
            "output": "output_0.bin",
            "seed": 1,
        }
        self._messages: list[Message] = [script["job"], call]
        self._builds: list[Message] = list(script["builds"])
        self._asked = False

    def send(self, message: Message) -> None:
        self._asked = message.get("stage") == "build"

    def receive(self) -> Message | None:
        if self._asked:
            self._asked = False
            return self._builds.pop(0) if self._builds else {"failure": "no such build"}
        return self._messages.pop(0) if self._messages else None


def main(directory: str) -> int:
    """Run the script in `directory`; the exit code says nothing about the candidate."""
    from dice.verify.gpu_worker import GpuWorker
    from dice.verify.worker import serve

    os.chdir(directory)
    with open("script.json") as file:
        script = Script(json.load(file))
    return serve(script, GpuWorker)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
