"""Pay the first-use costs of torch once, in the warm parent, so that no forked child pays them."""

from dice.verify.measure import measure
from dice.verify.policy import Policy
from dice.verify.reduce import Reduced
from dice.verify.reference_child import run_reference

_PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = nn.Linear(n, n)
        self.convolution = nn.Conv2d(1, 2, 3)
    def forward(self, x):
        y = torch.softmax(torch.relu(self.linear(x)), dim=1).sum(dim=1, keepdim=True)
        return y + self.convolution(x[None, None]).mean()
def get_inputs():
    return [torch.rand(8, 8)]
def get_init_inputs():
    return [8]
"""


def warm_up() -> None:
    """Measure and run a small problem in memory; writes nothing."""
    measured = measure(_PROBLEM)
    run_reference(Reduced(code=_PROBLEM, changes=(), measured=measured), Policy())
