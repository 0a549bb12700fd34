"""The rules that turn a verdict into a number."""

from dice.types import Reward, Verdict


def reward(verdict: Verdict) -> Reward:
    """The paper's rule (arXiv 2602.11715): 1 for a candidate that compiles and is correct, else 0.

    Unlike the public code's rule, a candidate without a kernel of its own earns nothing: the judge
    never calls it correct.
    """
    return Reward(value=float(verdict.correct), rule="compiled_and_correct")
