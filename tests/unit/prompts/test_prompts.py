import ast
import json
import re

import pytest

from dice.errors import ProblemError, UserError
from dice.problems import load_jsonl, parse_problem
from dice.prompts import canonical_code, extract, render, render_infilling, template_texts
from dice.types import Completion, Problem, Prompt
from tests.data import shared_data


def completion(text: str) -> Completion:
    return Completion(
        prompt_ids=(),
        token_ids=(),
        steps=(),
        logprobs=(),
        text=text,
        finish_reason="stop",
        forwards=0,
        seed=0,
    )


def test_canonical_code_drops_what_does_not_compute_and_keeps_every_name() -> None:
    code = '''
"""Doc."""
class Model(nn.Module):
    """Doc."""
    def __init__(self, features: int, eps: float = 1e-5) -> None:
        """Doc."""
        super(Model, self).__init__()
        self.eps: float = eps  # why
    def forward(self, x: torch.Tensor):
        return (x+self.eps)
'''
    expected = """class Model(nn.Module):

    def __init__(self, features, eps=1e-05):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x + self.eps
"""
    assert canonical_code(code) == expected


def test_canonical_code_of_every_public_problem_is_stable_and_parses() -> None:
    for problem in load_jsonl(shared_data("kernelbench_v0.2.jsonl")):
        once = canonical_code(problem.code)
        ast.parse(once)
        assert canonical_code(once) == once


def test_nano_prompt_is_the_canonical_code_between_its_two_tokens() -> None:
    code = "class Model: pass\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
    prompt = render(parse_problem(code, name="p"))
    assert prompt.text == f"<|problem|>{canonical_code(code)}<|kernel|>"
    assert (prompt.problem, prompt.template) == ("p", "nano")


CODE = "class Model: 'has {{suffix}} in it'\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def test_kernelbench_is_one_message_with_an_example_and_the_problem_as_it_is() -> None:
    prompt = render(parse_problem(CODE, name="p"), "kernelbench")
    (message,) = prompt.messages
    assert (prompt.text, message.role, prompt.template) == ("", "user", "kernelbench")
    assert f"```python\n{CODE}```" in message.content
    assert message.content.count("class ModelNew") == 1
    example = re.findall(r"```python\n(.*?)```", message.content, re.DOTALL)[1]
    ast.parse(example)


@pytest.mark.parametrize("forced", [False, True])
def test_infilling_shows_prefix_and_suffix_and_forces_them_on_request(forced: bool) -> None:
    problem = parse_problem(CODE, name="p")
    prefix, suffix = "import a\nsource = '''", "'''\nclass ModelNew: 1"
    prompt = render_infilling(problem, prefix, suffix, forced=forced)
    content = prompt.messages[0].content
    assert all(f"```python\n{text.strip()}\n```" in content for text in (CODE, prefix, suffix))
    assert prompt.forced_prefix == (f"```python\n{prefix}" if forced else "")
    if forced:
        answer = completion(f"{prompt.forced_prefix}MIDDLE{prompt.forced_suffix}")
        assert extract(prompt, answer).code == f"{prefix}MIDDLE{suffix}\n"


def test_every_public_infilling_answer_comes_back_whole() -> None:
    for line in shared_data("dice_infilling_eval_99.jsonl").read_text().splitlines():
        row = json.loads(line)
        problem = Problem(name=str(row["id"]), code=row["pytorch_code"])
        prefix, middle, suffix = row["prefix"], row["middle"], row["suffix"]
        prompt = render_infilling(problem, prefix, suffix, forced=True)
        answer = completion(f"{prompt.forced_prefix}{middle}{prompt.forced_suffix}")
        assert extract(prompt, answer).code == f"{prefix}{middle}{suffix}\n"


def test_the_infilling_example_joins_to_its_complete_file() -> None:
    text = template_texts("infilling")["infilling"]
    _, prefix, suffix, whole = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[:4]
    assert whole.startswith(prefix)
    assert whole.endswith(suffix)
    assert whole in template_texts("kernelbench")["kernelbench"]


def test_a_checkpoints_own_text_wins() -> None:
    problem = parse_problem(CODE, name="p")
    prompt = render(problem, "mine", texts={"mine": "Faster:\n{{problem}}\nNow."})
    assert prompt.messages[0].content == f"Faster:\n{CODE}Now."
    prompt = render(problem, "kernelbench", texts={"kernelbench": "{{problem}}"})
    assert prompt.messages[0].content == CODE.strip()
    assert template_texts("nano") == {}


def test_a_text_whose_places_do_not_fit_is_refused() -> None:
    problem = parse_problem(CODE, name="p")
    with pytest.raises(UserError, match="give a prefix and a suffix"):
        render(problem, "infilling")
    with pytest.raises(UserError, match="places for nothing, but what is rendered is problem"):
        render(problem, "x", texts={"x": "Hello"})
    with pytest.raises(UserError, match="there is infilling, kernelbench, mine, nano"):
        render(problem, "x", texts={"mine": "{{problem}}"})


def test_unknown_template_and_bad_code_are_user_errors() -> None:
    problem = parse_problem("Model = get_inputs = 1\nget_init_inputs = 2", name="p")
    with pytest.raises(UserError, match="no prompt template 'x'"):
        render(problem, "x")
    with pytest.raises(ProblemError):
        canonical_code("def")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import torch\n", "import torch\n"),
        (
            "Sure:\n```python\na\n```\nthen\n```\nclass ModelNew: ...\n```\nbye",
            "class ModelNew: ...\n",
        ),
        ("```py\nclass ModelNew: 1\n```\n```\nnotes\n```", "class ModelNew: 1\n"),
        ("```\na\n```\n```\nb\n```", "b\n"),
        ("", ""),
        # Labelled as what is in it, not as what it is; device code alone in a block of its own.
        ("```cuda\n__global__\n```\n```cuda\nclass ModelNew: 1\n```", "class ModelNew: 1\n"),
        ("```Python3\na\n```\nUse:\n```bash\nrun\n```", "a\n"),
        # The last that defines it, not one that only uses it; a class of another name is none.
        (
            "```python\nclass ModelNew: 1\n```\nFixed:\n```python\nclass ModelNew: 2\n```\n"
            "```python\nmodel = ModelNew()\n```",
            "class ModelNew: 2\n",
        ),
        ("```\nclass ModelNewer: 1\n```\n```\nclass  ModelNew: 2\n```", "class  ModelNew: 2\n"),
        # Cut off: the complete draft wins, and without one what there is.
        ("```python\nclass ModelNew: 1\n```\n```python\nclass ModelNew: 2", "class ModelNew: 1\n"),
        ("Sure.\n```python\nclass ModelNew: 1\n  x", "class ModelNew: 1\n  x"),
        # Begun twice; closed on the code's own line; longer fences; in a list; carriage returns.
        ("```python\nclass Mod\n```python\nclass ModelNew: 1\n```", "class ModelNew: 1\n"),
        ("```python\nclass ModelNew: 1```", "class ModelNew: 1\n"),
        ("````python\nclass ModelNew: '```'\n````", "class ModelNew: '```'\n"),
        ("~~~\nclass ModelNew: 1\n~~~", "class ModelNew: 1\n"),
        ("1. It:\n   ```python title=x\nclass ModelNew: 1\n   ```\n", "class ModelNew: 1\n"),
        ("```python\r\nclass ModelNew: 1\r\n```\r\n", "class ModelNew: 1\r\n"),
        # Reasoning, whole, opened in the prompt, cut off.
        ("<think>\n```\nclass ModelNew: 1\n```\n</think>\n\nimport a", "import a"),
        ("first\n```\nclass ModelNew: 1\n```</think>import a", "import a"),
        ("<think>\n```\nclass ModelNew: 1\n```", ""),
    ],
)
def test_extract_takes_the_kernel_file(text: str, code: str) -> None:
    prompt = Prompt(problem="p", template="nano", text="")
    candidate = extract(prompt, completion(text), name="c0")
    assert (candidate.code, candidate.problem, candidate.name) == (code, "p", "c0")
