import pytest

from dice.types import Evidence, Verdict, VerdictKind
from dice.verify import sizes


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('source = """#define N 4096"""', {4096}),
        ("for (int i = 0; i < 4096u; i++)", {4096}),
        ("constexpr int n = 1 << 12;", {4096}),
        ("x.view(4096, 8192)", {4096, 8192}),
        ("kernel4096<<<1, 256>>>()", set()),
        ("float a = 0.4096f;", set()),
        ("int n = x.size(0); // 256 threads", set()),
        (
            '"""Reduced: N 4096 -> 256."""\n# 8192\nsource = """// 4096\nint a; /* 8192 */"""\n',
            set(),
        ),
        ('source = """// rows\nint n = 4096;"""\n', {4096}),
    ],
)
def test_unreduced_sizes_are_found_as_whole_numbers(code, found):
    changes = ("N 4096 -> 256", "shape[1] 8192 -> 512")
    assert sizes.unreduced(code, changes) == found


def test_an_untestable_verdict_keeps_what_was_seen():
    seen = Evidence(kind="wrong_output", message="differs")
    verdict = sizes.untestable(Verdict(kind=VerdictKind.WRONG, evidence=(seen,)), {8192, 4096})
    assert verdict.kind is VerdictKind.UNTESTABLE
    assert [one.kind for one in verdict.evidence] == ["hard_coded_sizes", "wrong_output"]
    assert "4096, 8192" in verdict.evidence[0].message
