"""How one imagined author writes: drawn once per problem, consulted by the builder."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """The habits of one author."""

    super_call: str
    imports: tuple[str, ...]
    base: str
    nn: str
    """How `torch.nn` is spelled in code."""
    functional: str
    """How `torch.nn.functional` is spelled in code."""
    upper: bool
    """Constants in upper case."""
    layout: str
    """Where sizes are written: "const", "tuple", "shape", "batch_shape", "local", "literal", "mixed"."""
    flow: str
    """How forward is written: "nest", "reassign", "named", "mixed"."""
    input_locals: bool
    """get_inputs names its tensors before returning them."""
    consts_first: bool
    """Constants stand before the class."""
    hyper: str
    """Where hyper-parameters live by preference: "arg", "default", "attr", "literal", "mixed"."""
    generator: str
    """"randn" or "rand" by preference."""


def draw_style(rng: random.Random) -> Style:
    """One author's habits."""
    functional_name = rng.choices(["F", "torch.nn.functional", "nn.functional"], [70, 22, 8])[0]
    form = rng.choices(["as", "from", "torch"], [84, 11, 5])[0]
    if form == "as":
        imports, nn = ["import torch", "import torch.nn as nn"], "nn"
    elif form == "from":
        imports, nn = ["import torch", "from torch import nn"], "nn"
        if rng.random() < 0.3:
            imports[1] = "from torch import nn, Tensor"
    else:
        imports, nn = ["import torch"], "torch.nn"
        if functional_name == "nn.functional":
            functional_name = "torch.nn.functional"
    if rng.random() < 0.05:
        imports.append("from typing import Optional")
    return Style(
        super_call=rng.choices(["super().__init__()", "super(Model, self).__init__()"], [55, 45])[
            0
        ],
        imports=tuple(imports),
        base=nn + ".Module",
        nn=nn,
        functional=functional_name,
        upper=rng.random() < 0.14,
        layout=rng.choices(
            ["const", "tuple", "shape", "batch_shape", "local", "literal", "mixed"],
            [44, 9, 8, 10, 10, 13, 6],
        )[0],
        flow=rng.choices(["nest", "reassign", "named", "mixed"], [34, 34, 18, 14])[0],
        input_locals=rng.random() < 0.45,
        consts_first=rng.random() < 0.22,
        hyper=rng.choices(["arg", "default", "attr", "literal", "mixed"], [34, 16, 8, 26, 16])[0],
        generator=rng.choices(["randn", "rand"], [62, 38])[0],
    )
