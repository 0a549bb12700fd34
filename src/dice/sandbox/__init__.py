"""Child processes with limits: `run` for a command, `Zygote` for Python workers, `features()`.

Imports nothing heavy. What each protection stops, and what is not stopped, is in `docs/threat-model.md`.
"""

from dice.sandbox.command import run
from dice.sandbox.features import features
from dice.sandbox.records import Access, ChildResult, Features, Incident, Limits
from dice.sandbox.supervise import Child
from dice.sandbox.wire import Channel
from dice.sandbox.zygote import Zygote

__all__ = [
    "Access",
    "Channel",
    "Child",
    "ChildResult",
    "Features",
    "Incident",
    "Limits",
    "Zygote",
    "features",
    "run",
]
