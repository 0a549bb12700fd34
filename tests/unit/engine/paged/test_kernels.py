"""The GPU's kernels in Triton's interpreter against plain PyTorch."""

import pytest
import torch

pytest.importorskip("triton")

from dice.engine.paged.attention import PagedAttention, Tiles
from dice.engine.paged.masks import TokenMasks
from dice.engine.paged.pointwise import add_norm, rotate_store, silu_mul
from dice.engine.paged.sampler import Masks, Parts, find_thresholds, scan
from dice.models.sdar.modeling_sdar import _rotate, rotary_tables

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

HEADS, KV_HEADS, D, BLOCK, PAGE = 4, 2, 16, 4, 16
MASK = 3


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("splits", [1, 4])
def test_attention_sees_every_key_up_to_the_end_of_the_block(splits):
    torch.manual_seed(0)
    table = torch.randperm(30)[:24].reshape(2, 12).int()
    keys, values = torch.randn(2, 30, PAGE, KV_HEADS, D)
    attend = PagedAttention(
        heads=HEADS,
        kv_heads=KV_HEADS,
        head_dim=D,
        block_size=BLOCK,
        page_size=PAGE,
        device=torch.device("cpu"),
        dtype=torch.float32,
    )
    tiles = Tiles(
        row=ints(0, 1, 1),
        token=ints(0, 8, 16),
        position=ints(32, 0, 100),
        length=ints(8, 0, 4),
        size=8,
    )
    positions = torch.full((24,), -1, dtype=torch.int32)
    positions[:8], positions[16:20] = torch.arange(32, 40), torch.arange(100, 104)
    q = torch.randn(24, HEADS, D)
    out = attend(q, keys, values, table, tiles, positions, attend.buffers(24, splits))
    assert not out[8:16].any()
    for row, token in [*((0, n) for n in range(8)), *((1, n) for n in range(16, 20))]:
        seen = (int(positions[token]) // BLOCK + 1) * BLOCK
        pages = table[row].long()
        k, v = (
            one[pages].reshape(-1, KV_HEADS, D)[:seen].repeat_interleave(2, 1)
            for one in (keys, values)
        )
        weights = (torch.einsum("hd,thd->ht", q[token], k) * D**-0.5).softmax(-1)
        wanted = torch.einsum("ht,thd->hd", weights, v)
        torch.testing.assert_close(out[token], wanted, atol=1e-5, rtol=1e-5)


def test_norms_add_to_the_residual():
    x, residual, weight = torch.randn(5, 24), torch.randn(5, 24), torch.randn(24)
    total = x + residual
    out = add_norm(x, residual, weight, 1e-6)
    torch.testing.assert_close(residual, total)
    torch.testing.assert_close(out, torch.nn.functional.rms_norm(total, (24,), weight, 1e-6))
    again = add_norm(None, residual, weight, 1e-6)
    torch.testing.assert_close(again, out)
    torch.testing.assert_close(residual, total)


def test_swiglu_of_an_odd_size():
    x = torch.randn(3, 2 * 1100)
    gate, up = x.chunk(2, -1)
    torch.testing.assert_close(silu_mul(x), torch.nn.functional.silu(gate) * up)


def test_heads_are_normed_rotated_and_stored_where_the_table_says():
    torch.manual_seed(1)
    tokens, theta, eps = 6, 1e4, 1e-6
    positions, rows = ints(0, 5, 17, 31, -1, 18), ints(0, 0, 0, 0, 0, 1)
    table = ints(3, 1, 0, 2).reshape(2, 2)
    keys, values = torch.zeros(2, 4, PAGE, KV_HEADS, D)
    qkv = torch.randn(tokens, (HEADS + 2 * KV_HEADS) * D)
    norms = torch.randn(D), torch.randn(D)
    cos, sin = rotary_tables(torch.arange(40)[None], D, theta)
    half = (cos[0, :, 0, : D // 2].contiguous(), sin[0, :, 0, : D // 2].contiguous())
    q = rotate_store(qkv, keys, values, norms, half, positions, rows, table, heads=HEADS, eps=eps)
    split = qkv.view(tokens, -1, D)
    for token, (position, row) in enumerate(zip(positions.tolist(), rows.tolist(), strict=True)):
        if position < 0:
            assert not q[token].any()
            continue
        at = cos[:, position : position + 1], sin[:, position : position + 1]

        def turned(x, weight, at=at):
            return _rotate(torch.nn.functional.rms_norm(x, (D,), weight, eps)[None, None], *at)[
                0, 0
            ]

        page = int(table[row, position // PAGE])
        torch.testing.assert_close(q[token], turned(split[token, :HEADS], norms[0]))
        torch.testing.assert_close(
            keys[page, position % PAGE], turned(split[token, HEADS : HEADS + KV_HEADS], norms[1])
        )
        assert torch.equal(values[page, position % PAGE], split[token, HEADS + KV_HEADS :])
    assert int((values != 0).any(-1).sum()) == 5 * KV_HEADS


def parts_of(logits, temperature, threshold, noise, splits=3, masks=None):
    parts = Parts.empty(len(logits), splits, torch.device("cpu"))
    scan(
        logits,
        parts,
        temperature_M=torch.tensor(temperature),
        threshold_M=threshold,
        noise_M=noise,
        mask_token_id=MASK,
        masks=masks,
        chunk=16,
    )
    return parts


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_pass_finds_the_best_token_its_probability_and_the_entropy(dtype):
    torch.manual_seed(2)
    logits = (3 * torch.randn(3, 70)).to(dtype)
    logits[1, MASK] = 100
    logits[2, 5] = logits[2, 60] = 50
    parts = parts_of(logits, [0.0] * 3, torch.full((3,), -1e30), ints(1, 2, 3))
    wide = logits.double().clone()
    wide[:, MASK] = -torch.inf
    best, split = parts.best.max(1)
    scale = (parts.best - best[:, None]).exp()
    weight = (parts.weight * scale).sum(1)
    normaliser = weight.log() + best
    assert torch.equal(parts.best_id[torch.arange(3), split].long(), wide.argmax(1))
    torch.testing.assert_close(normaliser.double(), wide.logsumexp(1))
    entropy = normaliser - (parts.mean * scale).sum(1) / weight
    wanted = torch.special.entr(wide.softmax(1)).sum(1)
    torch.testing.assert_close(entropy.double(), wanted, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize(("top_k", "top_p"), [(5, 1.0), (1000, 0.6), (6, 0.8)])
def test_thresholds_leave_what_top_k_and_top_p_leave(top_k, top_p):
    torch.manual_seed(3)
    logits, temperature = 2 * torch.randn(2, 37), 0.7
    threshold = torch.empty(2)
    find_thresholds(
        logits,
        threshold,
        temperature_M=torch.full((2,), temperature),
        top_k_M=ints(top_k, top_k),
        top_p_M=torch.full((2,), top_p),
        mask_token_id=MASK,
    )
    for row in range(2):
        scaled = logits[row].double() / temperature
        scaled[MASK] = -torch.inf
        order = scaled.argsort(descending=True)[: min(top_k, 36)]
        weights = scaled[order].softmax(0)
        left = order[weights.cumsum(0) - weights < top_p]
        assert threshold[row] == logits[row, left].min()


def test_draws_follow_the_distribution_and_the_seed_alone():
    torch.manual_seed(4)
    rows, temperature = 150, 0.8
    logits = (2 * torch.randn(12)).repeat(rows, 1)
    threshold = torch.full((rows,), float(logits[0].sort().values[3]))
    noise = torch.arange(rows, dtype=torch.int32)
    parts = parts_of(logits, [temperature] * rows, threshold, noise, splits=2)
    which = parts.score.argmax(1)
    at = torch.arange(rows)
    drawn = parts.drawn_id[at, which].long()
    assert torch.equal(parts.drawn[at, which], logits[at, drawn])
    law = logits[0].clone()
    law[(law < threshold[0]) | (torch.arange(12) == MASK)] = -torch.inf
    law = (law / temperature).softmax(0)
    counts = torch.bincount(drawn, minlength=12) / rows
    assert (counts - law).abs().sum() / 2 < 0.13
    again = parts_of(logits[:20], [temperature] * 20, threshold[:20], noise[:20], splits=2)
    assert torch.equal(again.drawn_id, parts.drawn_id[:20])


def test_only_the_draw_is_restricted_to_allowed_tokens():
    torch.manual_seed(5)
    sets = [frozenset({31, 32, 69}), frozenset({0, 33}), None, frozenset({40})]
    held = TokenMasks(70, torch.device("cpu"))
    masks = Masks(
        table=held.table, rows_M=ints(*(-1 if one is None else held.hold(one) for one in sets))
    )
    logits = 3 * torch.randn(4, 70)
    free = parts_of(logits, [0.0] * 4, torch.full((4,), -1e30), ints(1, 2, 3, 4))
    parts = parts_of(
        logits, [0, 0.8, 0.8, 0.0], torch.full((4,), -1e30), ints(1, 2, 3, 4), 3, masks
    )
    for name in ("best", "best_id", "weight", "mean"):
        assert torch.equal(getattr(parts, name), getattr(free, name))
    at = torch.arange(4)
    which = parts.score.argmax(1)
    drawn = parts.drawn_id[at, which].tolist()
    assert torch.equal(parts.drawn[at, which], logits[at, drawn])
    assert drawn[0] == max(sets[0], key=lambda v: logits[0, v])
    assert drawn[1] in sets[1]
    assert drawn[3] == 40


def test_thresholds_count_allowed_tokens_only():
    torch.manual_seed(6)
    logits = torch.randn(2, 37)
    held = TokenMasks(37, torch.device("cpu"))
    few = frozenset(range(0, 37, 5))
    threshold = torch.empty(2)
    find_thresholds(
        logits,
        threshold,
        temperature_M=torch.ones(2),
        top_k_M=ints(3, 3),
        top_p_M=torch.ones(2),
        mask_token_id=MASK,
        masks=Masks(table=held.table, rows_M=ints(held.hold(few), -1)),
    )
    assert threshold[0] == logits[0, sorted(few)].sort(descending=True).values[2]
    logits[1, MASK] = -torch.inf
    assert threshold[1] == logits[1].sort(descending=True).values[2]


def test_equal_sets_share_a_row_and_the_table_grows():
    held = TokenMasks(70, torch.device("cpu"))
    first = held.hold(frozenset({69, 0}))
    assert held.hold(frozenset({0, 69})) == first
    rows = [held.hold(frozenset({token})) for token in range(20)]
    assert len({first, *rows}) == 21
    assert held.generation == 1
    for row, token in zip(rows, range(20), strict=True):
        assert held.table[row].tolist() == [1 << token, 0, 0]
    assert held.table[first].tolist() == [1, 0, 1 << 5]
    held.release(first)
    held.release(first)
    assert held.hold(frozenset({31})) == first
    assert held.table[first].tolist() == [-(1 << 31), 0, 0]
