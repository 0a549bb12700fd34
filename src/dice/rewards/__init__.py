"""Rewards: Verdict -> Reward. Torch-free."""

from dice.rewards.rules import reward

__all__ = ["reward"]
