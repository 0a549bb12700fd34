"""The HTML report: nothing a candidate wrote gets out of its block, and what is shown is the run's."""

import base64
import gzip
import hashlib
import json
from html.parser import HTMLParser

import pytest

from dice.eval.outcomes import outcomes
from dice.eval.records import Chosen, Generation, Judged, plain_verdict
from dice.eval.report.html import page, write_html
from dice.eval.summary import summarise
from dice.types import Evidence, Verdict, VerdictKind
from tests.unit.eval.builders import config, fill, verdict

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!-- <script> <!--",
    "-->]]><![CDATA[",
    "\"'`onload='x'",
    "nul \x00 bell \x07 escape \x1b[31m",
    "x" * 100_000,
    "\u202e\u2028\u2029\u200b 漢字 🦜 {{ 7 * 7 }} {% raw %}",
    "&lt;/script&gt; &amp; \\u003c/script>",
]


class Page(HTMLParser):
    """Tags with their attributes, and the text of each script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.blocks.append((dict(attrs), ""))

    def handle_data(self, data):
        if self.tags and self.cdata_elem:
            attributes, before = self.blocks[-1]
            self.blocks[-1] = (attributes, before + data)
        else:
            self.text += f" {data}"

    def data(self):
        [(attributes, block)] = [one for one in self.blocks if one[0].get("id") == "data"]
        if attributes["type"] == "application/gzip":
            return json.loads(gzip.decompress(base64.b64decode(block)))
        return json.loads(block)


def scored(store):
    found = outcomes(store.log, store.config.problems, store.config.sampling.samples)
    return found, summarise(found)


def render(store, **options) -> Page:
    return Page(page(store, *scored(store), **options))


def with_lines(path, lines, **changes):
    from dice.eval.store import Store

    store = Store.create(path, config(**changes))
    with store:
        for line in lines:
            store.append(line)
    return store


def generation(problem_id=1, sample=0, **changes) -> Generation:
    values = {"code_hash": f"hash{problem_id}", "seed": 0, "text": "code", "code": "code"}
    return Generation(level=1, problem_id=problem_id, sample=sample, **{**values, **changes})


def judged(one: Verdict, problem_id=1, sample=0, **changes) -> Judged:
    return Judged(
        level=1, problem_id=problem_id, sample=sample, verdict=plain_verdict(one), **changes
    )


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_comes_back_as_it_was_and_adds_no_tag(tmp_path, text):
    def run(path, text):
        evidence = Evidence(kind="k", message=text, details={text[:50]: text[:50]})
        found = Verdict(kind=VerdictKind.WRONG, evidence=(evidence,), notes=(text,))
        line = generation(code=text, text=text, pieces=(text, "b"), steps=(0, None))
        lines = [line, judged(found), generation(2, failure="refused", message=text)]
        return with_lines(path, lines)

    harmless, hostile = render(run(tmp_path / "a", "x")), render(run(tmp_path / "b", text))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in harmless.tags]
    data = hostile.data()
    [sample] = data["problems"][0]["samples"]
    texts = data["texts"]
    cut = text if len(text) <= 10_000 else None
    assert texts[sample["code"]] == text
    assert sample["replay"] == {"pieces": [text, "b"], "steps": [0, None]}
    assert (
        cut is None or texts[sample["evidence"][0]["message"]] == texts[sample["notes"][0]] == cut
    )
    assert texts[sample["evidence"][0]["message"]].startswith(text[:10_000])


def test_hostile_names_are_escaped(tmp_path):
    name = '<img src=x onerror="alert(1)"></title><script>1</script>{{ 7 * 7 }}'
    stem = "1_</script><b>"
    names = {
        "name": name,
        "model": {"kind": name, "model": name, "extra": {name: [name]}},
        "dataset": name,
        "dataset_version": name,
        "policy": {name: name},
        "provenance": ({"time": name, "torch": name},),
    }
    store = fill(tmp_path / "run", {(1, 0): verdict("untestable")}, problems=1, **names)
    renamed = Chosen(level=1, problem_id=1, stem=stem, code_hash="hash1")
    store.config = store.config.model_copy(update={"problems": (renamed,)})
    found = render(store)
    assert not [tag for tag, _ in found.tags if tag in ("img", "b")]
    assert [tag for tag, _ in found.tags].count("script") == 2
    assert name in found.text
    assert "49" not in found.text
    assert f"level1/{stem}" in found.text


def test_the_page_allows_its_own_script_and_style_and_loads_nothing(tmp_path):
    found = render(fill(tmp_path / "run", {(1, 0): verdict("correct", speedup=2.0)}))
    [policy] = [a["content"] for tag, a in found.tags if a.get("http-equiv")]
    own = [text for attributes, text in found.blocks if attributes.get("id") != "data"]
    assert len(own) == 2
    for text in own:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag, attributes in found.tags:
        assert tag not in ("link", "img", "iframe", "object", "base", "form"), tag
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
    assert "innerHTML" not in own[1]


def test_labels_refer_to_what_is_there(tmp_path):
    found = render(fill(tmp_path / "run", {(1, 0): verdict("correct", speedup=2.0)}))
    ids = {attributes["id"] for _, attributes in found.tags if "id" in attributes}
    targets = {a["href"][1:] for tag, a in found.tags if tag == "a"}
    assert targets <= ids
    for tag, attributes in found.tags:
        if tag == "svg" and attributes.get("aria-hidden") != "true":
            assert attributes["role"] == "img"
            assert attributes["aria-label"]


def test_numbers_are_the_summarys(tmp_path):
    table = {(n, 0): verdict("correct", speedup=s) for n, s in ((1, 0.5), (2, 3.0))}
    table |= {(3, 0): verdict("no_custom_kernel", speedup=3.0), (4, 0): verdict("wrong")}
    store = fill(tmp_path / "run", table, problems=4, place={"backend": "cuda", "timing": True})
    _, [level] = scored(store)
    text = " ".join(render(store).text.split())
    exec_ = level.filtered.exec
    assert f"Exec 50.0 % ({100 * exec_.low:.0f}–{100 * exec_.high:.0f})" in text
    assert "fast_2 eager 25.0 %" in text
    assert f"speedup eager {level.filtered.speedup['eager'].value:.2f}x" in text
    assert "Over PyTorch eager: 2 correct samples with a believed time, 1 of them faster" in text


def test_equal_samples_share_their_text_and_verdict(tmp_path):
    lines = [generation(sample=n, text="same", code="same") for n in range(2)]
    lines += [judged(verdict("correct")), judged(verdict("correct"), sample=1, same_as=0)]
    data = render(with_lines(tmp_path / "run", lines, problems=1, samples=2)).data()
    first, second = data["problems"][0]["samples"]
    assert first["code"] == second["code"]
    assert second["same_as"] == 0
    assert "evidence" not in second


def replayable(path, samples: int, speedups: dict[int, float]):
    lines = []
    for n in range(samples):
        text = hashlib.sha256(str(n).encode()).hexdigest() * 200
        lines.append(generation(sample=n, text=text, code=text, pieces=("a", text), steps=(0, 1)))
        one = verdict("correct", speedup=speedups[n]) if n in speedups else verdict("wrong")
        lines.append(judged(one, sample=n))
    return with_lines(path, lines, problems=1, samples=samples)


def test_the_best_and_the_first_can_be_replayed(tmp_path):
    found = render(replayable(tmp_path / "run", 4, {2: 1.5, 3: 1.2}))
    data = found.data()
    samples = data["problems"][0]["samples"]
    assert [one["n"] for one in samples if "replay" in one] == [0, 2]
    assert [one["n"] for one in samples if one.get("replay_left_out")] == [1, 3]
    assert data["problems"][0]["best"] == 2
    assert "leaves out the denoising of 2 samples" in found.text


def test_a_large_run_is_packed_and_cut_and_says_so(tmp_path):
    store = replayable(tmp_path / "run", 100, {7: 2.0})
    whole = render(store, replays=100)
    [attributes] = [a for a, _ in whole.blocks if a.get("id") == "data"]
    assert attributes["type"] == "application/gzip"
    assert whole.data()["left_out"] == {"replays": 0, "codes": 0}
    cut = render(store, replays=100, limit_mib=0.01)
    assert cut.data()["left_out"]["replays"] == 100
    assert cut.data()["left_out"]["codes"] >= 98
    assert "the denoising of 100 samples and the code of" in cut.text


CPU, GPU = {"backend": "simt"}, {"backend": "cuda", "gpu": "a GPU", "timing": True}


@pytest.mark.parametrize("place", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize(
    "table",
    [
        {},
        {(1, 0): None},
        {(1, 0): verdict("untestable"), (2, 0): verdict("untestable")},
        {(1, 0): verdict("wrong"), (2, 0): "context_overflow"},
        {(1, 0): verdict("correct", speedup=9.0, refused="too fast")},
        {(1, 0): verdict("correct", speedup=1.0), (2, 0): verdict("correct", speedup=1e-9)},
        {(1, 0): verdict("correct", speedup=float("inf"))},
    ],
    ids=["empty", "unjudged", "untestable", "none right", "refused", "extreme", "infinite"],
)
def test_every_corner_has_a_page_without_nan(tmp_path, table, samples, place):
    found = render(fill(tmp_path / "run", table, samples=samples, place=place))
    words = found.text.replace("NaN", "nan").lower().split()
    assert not {"nan", "inf", "none", "undefined", "nan%"} & set(words)
    assert len(found.data()["problems"]) == 2


def test_a_run_without_problems_has_a_page(tmp_path):
    found = render(fill(tmp_path / "run", {}, problems=0))
    assert "The run has no problems." in found.text


def test_it_is_written_whole(tmp_path):
    store = fill(tmp_path / "run", {(1, 0): verdict("correct")})
    write_html(store, *scored(store), tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().endswith("</html>")
