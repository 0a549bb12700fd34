"""Child processes with limits: `run` for a command, `Zygote` for Python workers, `features()`.

Imports nothing heavy. What each protection stops, and what is not stopped, is in `docs/threat-model.md`.
"""
