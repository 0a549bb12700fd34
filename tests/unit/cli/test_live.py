import io

import pytest
from rich.console import Console

from dice.cli.live import MASK_GLYPH, Track, denoising_view
from dice.engine import StepEvent


def event(
    positions: dict[int, str], *, stop: int, request: int = 0, end: str | None = None
) -> StepEvent:
    return StepEvent(
        request=request,
        block=0,
        step=0,
        positions=tuple(positions),
        token_ids=tuple(range(len(positions))),
        texts=tuple(positions.values()),
        logprobs=tuple(-0.1 for _ in positions),
        generated_stop=stop,
        finish_reason=end,
    )


def test_positions_fill_in_out_of_order_and_masks_show() -> None:
    track = Track()
    track.apply(event({0: "int ", 2: "= "}, stop=4))
    assert track.view(1).plain == f"int {MASK_GLYPH}= {MASK_GLYPH}"
    track.apply(event({1: "x ", 3: "1;"}, stop=4))
    assert track.view(1).plain == "int x = 1;"
    assert track.summary() == "4 tokens, 2 forwards, 2.0 tokens/forward"


def test_only_the_last_lines_show_and_special_tokens_do_not() -> None:
    track = Track()
    track.apply(event({0: "a\nb\n", 1: "c\n", 2: "d", 3: "<|endoftext|>"}, stop=4))
    assert track.view(2).plain == "c\nd"
    assert track.view(6).plain == "a\nb\nc\nd\n\n"


def test_plain_lines_without_a_terminal() -> None:
    out = io.StringIO()
    with denoising_view(Console(file=out, width=80), 2) as view:
        view.on_step(event({0: "a", 1: "b"}, stop=4, request=1, end="stop"))
    assert out.getvalue() == "candidate 2: finished, 2 tokens, 1 forwards, 2.0 tokens/forward\n"


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_view_fits_the_terminal(width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, height=24, color_system=None)
    with denoising_view(console, 2) as view:
        view.on_step(event({0: "x" * 300, 1: "\n"}, stop=4))
    plain = Console(file=io.StringIO(), width=width)
    assert out.getvalue()
    for line in out.getvalue().splitlines():
        text = line.split("\x1b")[-1] if "\x1b" in line else line
        assert plain.measure(text).maximum <= width
