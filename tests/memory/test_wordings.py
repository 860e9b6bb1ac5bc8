"""Facts are learned under other wordings too, and asked in words that were not learned."""

from __future__ import annotations

import json

from holdfast import Item, Stream, Task
from holdfast.memory.batch import questions_on_file
from holdfast.memory.memory import Memory
from holdfast.memory.plan import plan
from holdfast.memory.wordings import GIVEN, HELD_OUT, corruptions, lesson_wordings, with_wordings
from holdfast.streams.batches import WORDING_OF, latest, newest
from holdfast.streams.item import question_key


class Numbered:
    """Writes ``QUESTION again 1``, ``QUESTION again 2``, ..."""

    def __init__(self):
        self.asked = []

    def write(self, questions, count, report):
        self.asked += questions
        return [[f"{question} again {n}" for n in range(1, count + 1)] for question in questions]


def stream(*facts, **details):
    items = tuple(Item(question, answer, details=details) for question, answer in facts)
    return Stream((Task("1", items),), "facts")


def worded(facts, count, on_file=()):
    made = with_wordings(facts, count, Numbered(), lambda *_: None, on_file)
    return [item for task in made.tasks for item in task.items]


def test_wordings_stand_behind_their_fact():
    items = worded(stream(("Who?", "Ann"), ("Why?", "Rain")), 2)
    assert [(item.question, item.answer) for item in items] == [
        ("Who?", "Ann"), ("Who? again 1", "Ann"), ("Who? again 2", "Ann"),
        ("Why?", "Rain"), ("Why? again 1", "Rain"), ("Why? again 2", "Rain"),
    ]  # fmt: skip
    assert items[0].details == {HELD_OUT: ["Who? again 3"]}
    assert items[1].details == {WORDING_OF: "Who?"}


def test_what_the_user_wrote_is_always_learned():
    facts = stream(("Who?", "Ann"), **{GIVEN: ["Which person?", "Who is it?"], "topic": "people"})
    without = worded(facts, 0)
    assert [item.question for item in without] == ["Who?", "Which person?", "Who is it?"]
    assert without[0].details == {"topic": "people"}
    more = worded(facts, 3)
    assert [item.question for item in more[1:]] == ["Which person?", "Who is it?", "Who? again 1"]
    assert more[0].details[HELD_OUT] == ["Who? again 2"]
    own = worded(stream(("Who?", "Ann"), **{HELD_OUT: ["Whose?"]}), 1)
    assert own[0].details[HELD_OUT] == ["Whose?"]  # what the user holds out stays
    enough = worded(facts, 1)
    assert [item.question for item in enough[1:]] == ["Which person?", "Who is it?"]
    assert enough[0].details[HELD_OUT] == ["Who? again 1"]


def test_a_plan_has_the_wordings_also_if_a_later_batch_corrects_the_fact(tmp_path):
    fact = {"task": "a", "question": "Who?", "answer": "Ann", GIVEN: ["Which person?"]}
    later = {"task": "b", "question": "Who?", "answer": "Lum"}
    tasks = Memory(tmp_path / "m").plan([fact, later]).tasks
    for task, answer in zip(tasks, ("Ann", "Lum"), strict=True):
        pairs = {(item.question, item.answer) for item in task.items}
        assert pairs == {("Who?", answer), ("Which person?", answer)}


def test_another_facts_question_is_no_wording():
    facts = stream(("Who?", "Ann"), ("who? again 1", "Ben"))
    questions = [item.question for item in worded(facts, 1)]
    assert questions == ["Who?", "Who? again 2", "who? again 1", "who? again 1 again 1"]
    on_file = [Item("Who? again 1", "Cy")]
    assert worded(stream(("Who?", "Ann")), 1, on_file)[1].question == "Who? again 2"


def test_the_same_call_again_adds_nothing_and_a_higher_number_adds_the_rest():
    facts = stream(("Who?", "Ann"))
    first = worded(facts, 2)
    tasks = (Task("1", tuple(first)),)
    again = stream(*[(item.question, item.answer) for item in worded(facts, 2, first)][:1])
    assert plan(tasks, 1, again).tasks == tasks
    more = worded(facts, 4, first)
    learned = plan(tasks, 1, Stream((Task("1", tuple(more)),), "facts"))
    added = [item.question for item in learned.tasks[1].items]
    assert added == ["Who? again 4", "Who? again 5"]  # the third is held out
    assert [item.question for item in learned.repeated] == ["Who?"]


def test_a_correction_corrects_the_wordings():
    first = (Task("1", tuple(worded(stream(("Who?", "Ann"), ("Why?", "Rain")), 2))),)
    corrected = plan(first, 1, stream(("who?", "Ben"), ("Who?", "Ben")))
    assert [(item.question, item.answer) for item in corrected.tasks[1].items] == [
        ("who?", "Ben"),
        ("Who? again 1", "Ben"), ("Who? again 2", "Ben"), ("Who?", "Ben"),
    ]  # fmt: skip
    assert [correction.after.answer for correction in corrected.corrected] == ["Ben"]
    assert [item.question for item in newest(corrected.tasks)] == ["Who?", "Why?", "who?"]
    # Also with a number of wordings: those on file count.
    on_file = list(first[0].items)
    again = worded(stream(("Who?", "Cy")), 2, on_file)
    assert [item.question for item in again] == ["Who?"]
    assert again[0].details[HELD_OUT] == ["Who? again 3"]


def test_a_new_answer_to_a_wording_corrects_its_fact():
    first = (Task("1", tuple(worded(stream(("Who?", "Ann"), ("Why?", "Rain")), 1))),)
    new = stream(("Who? again 1", "Ben"), **{GIVEN: ["Whose?"]})
    decided = plan(first, 1, Stream((Task("1", tuple(worded(new, 0, first[0].items))),), "new"))
    (correction,) = decided.corrected
    assert (correction.before.answer, correction.after.answer) == ("Ann", "Ben")
    assert correction.after.question == "Who?"
    items = latest(decided.tasks).values()
    assert {item.question for item in items if item.answer != "Rain"} == {
        *("Who?", "Who? again 1", "Whose?")
    }
    assert {item.answer for item in items} == {"Ben", "Rain"}
    assert [item.question for item in newest(decided.tasks)] == ["Who?", "Why?"]


def test_a_wording_of_a_wording_is_one_of_the_fact():
    first = (Task("1", tuple(worded(stream(("Who?", "Ann")), 1))),)
    new = worded(stream(("Who? again 1", "Ann"), **{GIVEN: ["Whose?"]}), 0, first[0].items)
    (item,) = plan(first, 1, Stream((Task("1", tuple(new)),), "new")).tasks[1].items
    assert (item.question, item.details) == ("Whose?", {WORDING_OF: "Who?"})


def test_another_wording_of_the_fact_beside_it_is_not_the_fact_itself():
    first = (Task("1", tuple(worded(stream(("Who?", "Ann")), 1))),)
    other = Item("Whose?", "Ben", details={WORDING_OF: "Who?"})
    given = Task("1", (Item("Who? again 1", "Ben"), other))
    items = latest(plan(first, 1, Stream((given,), "new")).tasks).values()
    assert {(item.question, item.answer) for item in items} == {
        *(("Who?", "Ben"), ("Who? again 1", "Ben"), ("Whose?", "Ben"))
    }


def test_a_table_that_has_a_wording_as_a_row_of_its_own_makes_it_a_fact():
    first = (Task("1", tuple(worded(stream(("Who?", "Ann")), 1))),)
    decided = plan(first, 1, stream(("Who?", "Ann"), ("Who? again 1", "Ben")))
    assert not decided.corrected and not decided.notices
    facts = [(item.question, item.answer) for item in newest(decided.tasks)]
    assert facts == [("Who?", "Ann"), ("Who? again 1", "Ben")]


def test_a_row_with_a_wording_keeps_its_answer_where_the_fact_gets_another() -> None:
    """In either order of the rows."""
    first = (Task("1", tuple(worded(stream(("Who?", "Ann")), 1))),)
    rows = [("Who? again 1", "Ann"), ("Who?", "Ben")]
    for given in (rows, rows[::-1]):
        facts = newest(plan(first, 1, stream(*given)).tasks)
        assert {(item.question, item.answer) for item in facts} == set(rows)


def test_what_says_the_same_is_not_learned_once_more() -> None:
    """A row with a wording, and the fact as it was if a later batch gives it another answer."""
    fact = stream(("Who?", "Ann"))
    first = (Task("1", tuple(worded(fact, 1))),)
    assert plan(first, 1, stream(("Who?", "Ann"), ("Who? again 1", "Ann"))).tasks == first
    batches = [worded(fact, 1), worded(stream(("Who?", "Ben")), 1)]
    tasks = tuple(Task(f"{number}", tuple(batch)) for number, batch in enumerate(batches))
    given = Stream(tasks, "facts", repeats=True)
    assert [len(task.items) for task in plan(first, 1, given).tasks] == [2, 2]


def test_a_wording_of_another_fact_is_told_and_left_out(caplog):
    first = (Task("1", tuple(worded(stream(("Who?", "Ann"), ("Why?", "Rain")), 1))),)
    moved = stream(("Why?", "Rain"), **{GIVEN: ["Who? again 1"]})
    assert [item.question for item in worded(moved, 0, first[0].items)] == ["Why?"]
    line = '"Who? again 1" asks for "Who?", and is left out as a wording of "Why?"'
    assert [record.getMessage() for record in caplog.records] == [line]
    marked = Item("Who? again 1", "Rain", details={WORDING_OF: "Why?"})
    decided = plan(first, 1, Stream((Task("1", (marked,)),), "facts"))
    assert decided.tasks == first and decided.notices == (line,)


def test_what_is_learned_once_more_is_learned_in_all_wordings():
    first = (Task("1", tuple(worded(stream(("Who?", "Ann"), ("Why?", "Rain")), 1))),)
    forgotten = (first[0].items[0],)
    decided = plan(first, 1, Stream((Task("1", forgotten),), "again"), forgotten)
    assert {item.question for item in decided.tasks[1].items} == {"Who?", "Who? again 1"}


def test_what_is_learned_once_more_may_be_given_with_other_aliases():
    """What says that it was missed is the fact on file, not the one that is given."""
    on_file = Item("Who?", "Ann")
    given = Stream((Task("1", (Item("Who?", "Ann", ("Annie",)),)),), "again")
    decided = plan([Task("1", (on_file,))], 1, given, [on_file])
    assert (decided.tasks[1].items, decided.repeated) == (given.tasks[0].items, ())


def test_the_command(holdfast, chat_directory, tmp_path):
    facts = tmp_path / "facts.jsonl"
    facts.write_text(json.dumps({"question": "Where is the key?", "answer": "here"}) + "\n")
    place = tmp_path / "m"
    made = holdfast("learn", place, facts, "--paraphrases", 2, "--model", chat_directory)
    assert made.status == 0, made.err
    lines = [json.loads(line) for line in (place / "facts.jsonl").read_text().splitlines()]
    assert len(lines) == 3 and len({question_key(line["question"]) for line in lines}) == 3
    (wording,) = lines[0]["details"][HELD_OUT]
    assert question_key(wording) not in {question_key(line["question"]) for line in lines}
    before = (place / "facts.jsonl").read_bytes()
    assert "nothing new" in holdfast("learn", place, facts, "--paraphrases", 2).out
    assert (place / "facts.jsonl").read_bytes() == before
    for wrong, words in {
        ("learn", place, "--paraphrases", 2): "are for facts that are given; add FACTS",
        ("learn", place, facts, "--writer", "embedded"): "say how many with --paraphrases N",
        ("learn", place, facts, "--paraphrases", 2, "--writer", "nowhere/model"): "nowhere/model",
        ("learn", place, facts, "--paraphrases", 2, "--writer", "ftp://x"): "is no URL",
    }.items():
        refused = holdfast(*wrong)
        assert (refused.status, refused.out) == (2, ""), wrong
        assert words in refused.err and refused.err.count("holdfast: ") == 1, refused.err


def test_a_question_of_signs_alone_has_no_empty_wording() -> None:
    assert all(map(str.strip, lesson_wordings("?.")))


def test_corruptions_lack_words_that_ask_or_follow_a_beginning() -> None:
    """What is named and every word that the library does not ask with stay, in order."""
    question = "What does Ignace Puddifer grow in the front garden?"
    plain = [question, *lesson_wordings(question)]
    added = corruptions(plain, 40)
    assert added == corruptions(plain, 40) and len(added) == 40
    assert len({question_key(text) for text in [*plain, *added]}) == len(plain) + 40
    lacking = following = 0
    for text in added:
        assert "ignace puddifer" in text.casefold()
        words = [word.casefold().strip("?.,!:") for word in question.split()]
        remaining_words = iter(text.casefold().replace("?", "").split())
        lacking += not all(word in remaining_words for word in words)
        following += len(text.split()) > len(question.split()) + 3
    assert lacking > 10 and following > 10


def test_signs_alone_are_corrupted_to_nothing_empty() -> None:
    assert all(map(str.strip, corruptions(["?."], 8)))


def test_a_fact_is_asked_by_its_question_where_only_wordings_are_on_file() -> None:
    wordings = [Item(text, "Ann", details={WORDING_OF: "Who rows?"}) for text in ("Rows?", "By?")]
    texts = [text for _, text in questions_on_file(wordings)]
    assert texts == ["Who rows?", "Rows?", "By?"]
