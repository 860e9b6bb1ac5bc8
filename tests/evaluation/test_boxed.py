from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.evaluation.boxed import Match, accepts, can_become, extract_boxed, first_box, judge
from holdfast.streams import braces_balance
from reference import recall as reference

MATCHES: tuple[Match, ...] = ("exact", "ignore_case", "released")

# Letters whose lower case is longer, depends on what follows, or is another letter's; marks whose
# order is canonical; white space; braces; what incomplete bytes decode to.
LETTERS = string.ascii_letters + " \t\n{}\\boxed{éßİΣσςΟ東🙂e\u0301\u0323\u0345\u2003\ufffdﬁǅ각"
texts = st.text(st.sampled_from(LETTERS), max_size=12)
answers = texts.map(str.strip).filter(lambda text: bool(text) and braces_balance(text))
matches = st.sampled_from(MATCHES)
spaces = st.text(st.sampled_from(" \t\n\u2003"), max_size=2)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"so \boxed{ f{x}{y} } and \boxed{c}", "f{x}{y}"),
        (r"\boxed{\{}", None),
        (r"\boxed {a}", None),
        (r"\boxed{\boxed{a}}", r"\boxed{a}"),
        ("nothing", None),
    ],
)
def test_the_first_box_up_to_its_balanced_brace(text: str, content: str | None) -> None:
    assert extract_boxed(text) == content


@given(st.text(st.sampled_from(LETTERS), max_size=8), texts, texts)
def test_extraction_equals_the_reference(before: str, content: str, after: str) -> None:
    text = f"{before}\\boxed{{{content}}}{after}"
    assert extract_boxed(text) == reference.first_box(text)
    assert extract_boxed(text[:-1]) == reference.first_box(text[:-1])


@pytest.mark.parametrize(
    ("match", "right", "wrong"),
    [
        ("exact", ["aB", "Alias", " aB\n"], ["AB", "alias"]),
        ("ignore_case", ["AB", "ALIAS"], ["a B"]),
        ("released", ["AB"], ["Alias"]),
    ],
)
def test_what_each_match_accepts(match: Match, right: list[str], wrong: list[str]) -> None:
    assert [accepts(content, ("aB", "Alias"), match) for content in right] == [True] * len(right)
    assert not any(accepts(content, ("aB", "Alias"), match) for content in wrong)


def test_two_codings_of_one_text_are_one_answer() -> None:
    assert accepts("caf\u00e9", ("cafe\u0301",), "exact")
    assert not accepts("cafe", ("cafe\u0301",), "exact")
    # Marks may come in another order.
    assert accepts("q\u0307\u0323", ("q\u0323\u0307",), "exact")
    assert can_become("q\u0307", ("q\u0323\u0307",), "exact")


@given(answers, st.sampled_from([str, str.upper, str.lower, str.title]), matches)
def test_any_case_equals_the_reference(answer: str, recase: type[str], match: Match) -> None:
    # Where it differs on purpose: the two small sigmas, and codings of one text.
    answer = answer.translate({ord(letter): "x" for letter in "Σσς\u0301\u0323\u0345"})
    ours = accepts(recase(answer), (answer,), match)
    assert ours == reference.is_correct(recase(answer).strip(), answer, (), match != "exact")


@given(st.lists(answers, min_size=1, max_size=3), st.data(), matches, spaces, spaces)
@example(["ΟΔΟΣ"], None, "ignore_case", "", "").via("a final sigma")
def test_every_prefix_of_an_accepted_answer_can_become_it(
    accepted: list[str], data: st.DataObject | None, match: Match, before: str, after: str
) -> None:
    answer = accepted[0]
    if data is not None and match != "released":
        answer = data.draw(st.sampled_from(accepted))
    forms = [answer] if match == "exact" else [answer, answer.upper(), answer.lower()]
    for form in forms:
        if not accepts(form, accepted, match):
            continue  # the upper case of ß is SS, whose lower case is not ß
        content = before + form + after
        for end in range(len(content) + 1):
            assert can_become(content[:end], accepted, match)
        # A decoder shows bytes of an unfinished character as U+FFFD.
        encoded = content.encode()
        for end in range(len(encoded) + 1):
            assert can_become(encoded[:end].decode(errors="replace"), accepted, match)


@given(answers, texts, texts, matches)
@example("ok", "o", "k", "exact").via("both outcomes occur")
def test_what_cannot_become_an_answer_never_does(
    answer: str, content: str, rest: str, match: Match
) -> None:
    if not can_become(content, (answer,), match):
        assert not accepts(content + rest, (answer,), match)
        # Whatever stood there for unfinished bytes, another text may now.
        assert not accepts(content.rstrip("\ufffd") + rest, (answer,), match)


@given(answers, texts, texts, matches)
def test_a_verdict_is_final(answer: str, text: str, rest: str, match: Match) -> None:
    for begun in (text, f"\\boxed{{{text}", f"\\boxed{{{answer}}}{text}"):
        verdict = judge(begun, (answer,), match, ended=False)
        if verdict is None:
            assert judge(begun, (answer,), match, ended=True) is False
            assert first_box(begun) is None or not first_box(begun).closed
        else:
            assert judge(begun + rest, (answer,), match, ended=True) is verdict
            assert judge(begun, (answer,), match, ended=True) is verdict
