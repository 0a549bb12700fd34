"""What a canvas lets a model write, and where it stops."""

from dice.engine.canvas import Canvas

MASK, STOP = 0, 9


def make(prompt: list[int], template: list[int | None]) -> Canvas:
    return Canvas(prompt, template, block_size=4, mask_token_id=MASK)


def test_a_free_end_is_extended_to_the_end_of_its_block() -> None:
    canvas = make([1, 2, 3], [None, None])
    assert len(canvas) == 8
    assert [canvas.masked(block) for block in (0, 1)] == [[3], [4, 5, 6, 7]]
    assert (canvas.free_stop, canvas.suffix_ids) == (8, ())


def test_behind_a_forced_end_nothing_is_written() -> None:
    canvas = make([1, 2, 3], [4, None, None, 5, 6, 7])
    assert canvas.token_ids == [1, 2, 3, 4, MASK, MASK, 5, 6, 7, MASK, MASK, MASK]
    assert [canvas.masked(block) for block in (0, 1, 2)] == [[], [4, 5], []]
    assert canvas.suffix_ids == (5, 6, 7)
    assert canvas.next_masked_block(0) == 1
    assert canvas.next_masked_block(2) is None


def test_a_mask_token_that_is_given_is_not_to_be_written() -> None:
    canvas = make([MASK, 2], [None])
    assert canvas.masked(0) == [2, 3]


def test_only_a_written_stop_token_behind_no_hole_ends_the_sequence() -> None:
    canvas = make([STOP], [STOP, None, None])
    stops = frozenset({STOP})
    assert canvas.stop_position(0, stops) is None
    canvas.write(3, STOP, 0, -0.1)
    assert canvas.stop_position(0, stops) is None
    canvas.write(2, 5, 1, -0.2)
    assert canvas.stop_position(0, stops) == 3
    assert canvas.steps == [None, None, 1, 0]
    assert canvas.logprobs == [None, None, -0.2, -0.1]
