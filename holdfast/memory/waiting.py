"""Questions of facts that wait to be learned, given to the gate when somebody may ask for them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from holdfast.memory.words import index_keys, plain_words, words

_MOST = 32  # of a question; reading one takes some milliseconds


class WaitingQuestions:
    """They are found by the words that they share, since nobody has read them yet."""

    def __init__(self, questions: Iterable[tuple[int, str]]) -> None:
        """questions: the number of the fact, and the text."""
        self._unread = dict(enumerate(questions))
        self._by_key: dict[str, list[int]] = defaultdict(list)
        for number, (_, text) in self._unread.items():
            for key in _keys(text):
                self._by_key[key].append(number)

    def about(self, asked: Sequence[str]) -> list[tuple[int, str]]:
        """The questions that share most words with those asked; each is given once."""
        numbers: dict[int, None] = {}
        for question in asked:
            shared = Counter(
                number
                for key in _keys(question)
                for number in self._by_key.get(key, ())
                if number in self._unread
            )
            numbers |= dict.fromkeys(number for number, _ in shared.most_common(_MOST))
        return [self._unread.pop(number) for number in numbers]


def _keys(text: str) -> set[str]:
    """Of the words that the library of relations does not ask with; of all if there are none."""
    keys = [word.key for word in words(text)]
    chosen = [key for key in keys if key not in plain_words()] or keys
    return {key for word in chosen for key in index_keys(word)}
