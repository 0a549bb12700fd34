"""The families and how often they are drawn."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from dice.data.synth import (
    attention,
    conv,
    conv_then,
    conv_transpose,
    linear,
    matmul,
    matvec,
    pooling,
)
from dice.data.synth.builder import Builder, new_builder
from dice.data.synth.compose import build_compose, build_sequential
from dice.data.synth.glu import build_glu
from dice.data.synth.indexing import build_combine, build_embedding, build_transpose
from dice.data.synth.loss import build_cross_entropy, build_loss
from dice.data.synth.masking import (
    build_compare,
    build_masked_softmax,
    build_select,
    build_triangular,
)
from dice.data.synth.norm import build_norm
from dice.data.synth.pair import Pair
from dice.data.synth.pairloss import build_cosine, build_triplet
from dice.data.synth.pointwise import build_pointwise
from dice.data.synth.reduce import build_reduce
from dice.data.synth.rowstat import build_global_norm, build_rowstat
from dice.data.synth.scan import build_scan
from dice.data.synth.softmax import build_softmax


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One operator family: `build` writes a whole pair into a fresh builder."""

    name: str
    weight: float
    build: Callable[[Builder], None]


FAMILIES: tuple[Family, ...] = (
    Family(name="pointwise", weight=20.0, build=build_pointwise),
    Family(name="reduce", weight=14.0, build=build_reduce),
    Family(name="norm", weight=14.0, build=build_norm),
    Family(name="rowstat", weight=12.0, build=build_rowstat),
    Family(name="global_norm", weight=2.5, build=build_global_norm),
    Family(name="scan", weight=6.0, build=build_scan),
    Family(name="loss", weight=8.0, build=build_loss),
    Family(name="cross_entropy", weight=2.5, build=build_cross_entropy),
    Family(name="cosine", weight=2.5, build=build_cosine),
    Family(name="triplet", weight=3.0, build=build_triplet),
    Family(name="glu", weight=3.5, build=build_glu),
    Family(name="combine", weight=4.0, build=build_combine),
    Family(name="select", weight=2.5, build=build_select),
    Family(name="compare", weight=2.0, build=build_compare),
    Family(name="triangular", weight=1.5, build=build_triangular),
    Family(name="masked_softmax", weight=1.5, build=build_masked_softmax),
    Family(name="transpose", weight=2.0, build=build_transpose),
    Family(name="embedding", weight=1.5, build=build_embedding),
    Family(name="compose", weight=7.0, build=build_compose),
    Family(name="sequential", weight=2.0, build=build_sequential),
    Family(name="softmax", weight=8.0, build=build_softmax),
    *(
        Family(name=name, weight=weight, build=build)
        for module in (
            conv,
            conv_transpose,
            conv_then,
            matmul,
            matvec,
            linear,
            attention,
            pooling,
        )
        for name, weight, build in module.FAMILIES
    ),
)


BARE = 0.25
"""How often a problem is one operator and nothing else, as most of KernelBench's first level is."""

MAX_KERNEL_CHARS = 4800
"""About 1,500 tokens; longer candidates are drawn again."""


def sample_pair(rng: random.Random, family: str | None = None) -> Pair:
    """One random pair, deterministic in the state of `rng`; of one family if it is named."""
    chosen = [f for f in FAMILIES if family is None or f.name == family]
    if not chosen:
        raise ValueError(f"no such family: {family}")
    while True:
        picked = rng.choices(chosen, [f.weight for f in chosen])[0]
        b = new_builder(rng)
        b.bare = rng.random() < BARE
        picked.build(b)
        pair = b.finish(picked.name)
        if len(pair.kernel_code) <= MAX_KERNEL_CHARS:
            return pair
