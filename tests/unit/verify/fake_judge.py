"""A judge for the pool's tests: candidates say what happens, nothing is built."""

import os
import time
from pathlib import Path

from dice.errors import ProblemError, SandboxError, ToolchainError
from dice.types import Evidence, Verdict, VerdictKind


class FakeJudge:
    def __init__(self):
        self.prepared = 0

    def prepare(self, problem):
        if problem.code == "bad":
            raise ProblemError(f"{problem.name}: no Model")
        self.prepared += 1
        return problem

    def judge(self, prepared, candidate):
        word, _, argument = candidate.code.strip().partition(" ")
        if word == "sleep":
            time.sleep(float(argument))
        elif word == "die":
            os._exit(9)
        elif word == "die_once" and not Path(argument).exists():
            Path(argument).touch()
            os._exit(9)
        elif (word == "if_missing" and not Path(argument).exists()) or word == "raise":
            raise SandboxError(argument)
        message = f"{os.getpid()} {self.prepared} {os.environ.get('CUDA_VISIBLE_DEVICES')}"
        evidence = (Evidence(kind="seen", message=message),)
        kind = VerdictKind(argument) if word == "be" else VerdictKind.CORRECT
        return Verdict(kind=kind, evidence=evidence, notes=(candidate.code,))

    def close(self):
        pass


def open_judge(policy, *, backend, timing, on_progress):
    on_progress(f"opening {backend} with seed {policy.seed}")
    return FakeJudge()


def cannot_open(policy, *, backend, timing, on_progress):
    raise ToolchainError("no g++")


def dies_at_once(policy, *, backend, timing, on_progress):
    os._exit(3)
