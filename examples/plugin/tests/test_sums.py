from my_holdfast.sums import sums

from holdfast import load_stream
from holdfast.streams import StreamConfig


def test_the_same_settings_make_the_same_stream():
    one, other = (sums(StreamConfig(name="sums")) for _ in range(2))
    assert one.fingerprint == other.fingerprint
    assert one.fingerprint != sums(StreamConfig(name="sums", seed=7)).fingerprint


def test_answers_are_right_and_a_shorter_stream_begins_the_longer():
    stream = load_stream("sums", tasks=3)
    assert stream.fingerprint == load_stream("sums", tasks=9).first(3).fingerprint
    for task in stream.tasks:
        for item in task.items:
            one, other = item.question.removeprefix("What is ").rstrip("?").split(" plus ")
            assert int(item.answer) == int(one) + int(other)
