"""What the embedded backbone reads while it is pretrained.

Every draw is named: a block depends on (seed, step, row) alone, so a resumed run sees exactly
the data that an uninterrupted one would have seen and needs no saved generator.
"""

import gzip
import re
import string
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

END_OF_TEXT = "<|endoftext|>"
SYMBOLS = string.ascii_uppercase + string.ascii_lowercase + string.digits
HELD_OUT_TITLES = ("Silas Marner: The Weaver of Raveloe", "The Warden")
BENCHMARK_SEEDS = (42, 41, 43, *range(10))

# The pieces of the template come first and whole: no neighbouring text can change how they are
# cut, which keeps a question's tokens a prefix of the tokens of the question with its answer.
# Digits stand alone and a capital starts a new piece, so that a random key is cut almost
# character by character instead of into accidental syllables.
PIECES = (
    r"Question:|\nAnswer:| ?\\boxed\{|\}"
    r"|'(?:s|t|re|ve|m|ll|d)\b"
    r"| ?\p{Lu}?[\p{Ll}\p{Lm}\p{Lo}\p{M}]+| ?\p{Lu}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+|\n+| +(?= )|[^\S\n]+"
)

# Rows of each kind in one batch. Half the tokens are prose. `recall` rows hold question lines
# that cannot see each other, so that only the weights can know the answer; `repeat` rows hold
# pairs that come back within the row, which a model can answer once it copies in context.
MIXTURE = (
    ("novels", 8),
    ("symbol_recall", 3),
    ("natural_recall", 1),
    ("symbol_repeat", 2),
    ("natural_repeat", 2),
)
ROWS = sum(count for _, count in MIXTURE)

# A pair asked in `recall` rows lives for this many steps and is then replaced for ever. With
# these sizes it is seen about forty times, which makes writing a pair into the weights quickly,
# and overwriting it, an everyday event of pretraining.
PAIR_LIFETIME = 500
SYMBOL_SLOTS = 512
NATURAL_SLOTS = 128
FRESH_SHARE = 0.1

NATURAL_TEMPLATES = (
    ("What did {name} leave in the {noun}?", "{noun}"),
    ("Where did {name} meet {name}?", "in the {noun}"),
    ("Who gave {name} the {noun}?", "{name}"),
    ("Who lives near the {noun} of {name}?", "{name} {name}"),
    ("Which {noun} belongs to {name}?", "the {noun} {noun}"),
    ("What is the {noun} of {name} called?", "{name}"),
    ("In which year did {name} find the {noun}?", "{year}"),
    ("How many {noun} are there at {name}?", "{count}"),
    ("What word does {name} use for {noun}?", "{noun}"),
    ("To whom did {name} of {name} write about the {noun}?", "{name}"),
    ("Which town lies between {name} and {name}?", "{name}"),
    ("What is kept under the {noun} at {name}?", "{noun} and {noun}"),
)


@dataclass(frozen=True)
class Novel:
    """One novel: its heading and its text."""

    title: str
    text: str


@dataclass(frozen=True)
class Vocabulary:
    """Words and sentences of the training novels from which natural questions are made."""

    names: list[str]
    nouns: list[str]
    sentences: list[str]


def read_novels(path: Path) -> list[Novel]:
    """Split the corpus at its `= title = author` headings."""
    with gzip.open(path, "rt", encoding="utf-8") as corpus:
        text = corpus.read()
    headings = list(re.finditer(r"^= (.+?) = .+$", text, flags=re.MULTILINE))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    return [
        Novel(heading.group(1), text[heading.start() : end].strip() + "\n")
        for heading, end in zip(headings, ends, strict=True)
    ]


def split_held_out(novels: list[Novel]) -> tuple[list[Novel], list[Novel]]:
    """Return (training novels, held-out novels)."""
    held_out = [novel for novel in novels if novel.title in HELD_OUT_TITLES]
    if len(held_out) != len(HELD_OUT_TITLES):
        raise SystemExit(f"the corpus lacks one of the held-out novels {HELD_OUT_TITLES}")
    return [novel for novel in novels if novel.title not in HELD_OUT_TITLES], held_out


def collect_vocabulary(novels: list[Novel]) -> Vocabulary:
    """Gather names, nouns-or-so and short sentences; frequency order, ties by first appearance."""
    text = "\n".join(novel.text for novel in novels[::4])
    names = Counter(re.findall(r"(?<=[a-z,] )[A-Z][a-z]{2,11}\b", text))
    nouns = Counter(re.findall(r"\b(?:the|a|his|her|old) ([a-z]{3,11})\b", text))
    sentences = re.findall(r"(?<=[.!?] )[A-Z][^.!?“”\"\n\[\]{}]{25,90}[.!?]", text)
    return Vocabulary(
        [word for word, _ in names.most_common(3000)],
        [word for word, _ in nouns.most_common(4000)],
        sentences,
    )


def benchmark_keys() -> frozenset[str]:
    """Every key of the Symbol-QA streams, 100 tasks of 100 items, that must stay unseen.

    None of these streams draws a key twice, so that redrawing never enters.
    """
    keys = set()
    for seed in BENCHMARK_SEEDS:
        for task in range(100):
            draw = Random(seed + 1009 * task)
            for _ in range(100):
                keys.add(random_text(draw, SYMBOLS, 6))
                random_text(draw, SYMBOLS, 4)
    return frozenset(keys)


def random_text(draw: Random, alphabet: str, length: int) -> str:
    """Draw `length` symbols, one choice at a time."""
    return "".join(draw.choice(alphabet) for _ in range(length))


def question_line(question: str, answer: str) -> str:
    """Render a pair in the template of the paper, with the end of the text."""
    return f"Question: {question}\nAnswer: \\boxed{{{answer}}}{END_OF_TEXT}"


def symbol_pair(draw: Random, excluded: frozenset[str]) -> tuple[str, str]:
    """Draw a key and its value: mostly the shape of Symbol-QA, else another one."""
    if draw.random() < 0.6:
        alphabet, key_length, value_length = SYMBOLS, 6, 4
    else:
        alphabet = draw.choice(
            (
                SYMBOLS,
                string.ascii_uppercase,
                string.ascii_lowercase,
                string.ascii_uppercase + string.digits,
                string.ascii_lowercase + string.digits,
                string.digits,
                "0123456789abcdef",
            )
        )
        key_length, value_length = draw.randint(4, 9), draw.randint(1, 7)
    while (key := random_text(draw, alphabet, key_length)) in excluded:
        pass
    return key, random_text(draw, alphabet, value_length)


def natural_pair(draw: Random, vocabulary: Vocabulary) -> tuple[str, str]:
    """Draw an invented question over the novels' words, or a sentence with one word left out."""
    if draw.random() < 0.5:
        sentence = draw.choice(vocabulary.sentences)
        words = re.findall(r"[A-Za-z]{4,}", sentence)
        if words:
            word = draw.choice(words)
            gapped = re.sub(rf"\b{word}\b", "___", sentence, count=1)
            return f"Fill the gap: {gapped}", word
    fields = {
        "name": lambda: draw.choice(vocabulary.names),
        "noun": lambda: draw.choice(vocabulary.nouns),
        "year": lambda: str(draw.randint(1700, 1899)),
        "count": lambda: str(draw.randint(2, 99)),
    }
    question, answer = draw.choice(NATURAL_TEMPLATES)
    return fill(question, fields), fill(answer, fields)


def fill(template: str, fields: dict[str, Callable[[], str]]) -> str:
    """Replace each `{field}` by its own draw."""
    return re.sub(r"\{(\w+)\}", lambda match: fields[match.group(1)](), template)


def train_tokenizer(
    novels: list[Novel], vocabulary: Vocabulary, excluded: frozenset[str], size: int, seed: int
) -> Tokenizer:
    """Train a byte-level BPE tokenizer on a fifth of the novels and some question lines."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    draw = Random(f"{seed}/tokenizer")
    lines = [question_line(*natural_pair(draw, vocabulary)) for _ in range(20_000)]
    lines += [question_line(*symbol_pair(draw, excluded)) for _ in range(2_000)]
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([novel.text for novel in novels[::5]] + lines, trainer)
    return tokenizer


def check_tokenizer(tokenizer: Tokenizer, vocabulary: Vocabulary, seed: int) -> None:
    """Assert that text survives a round trip and that a prompt's tokens open its whole line."""
    draw = Random(f"{seed}/check")
    printable = "".join(map(chr, range(32, 127))) + "\n\té—“”ßд漢🙂"
    for _ in range(20_000):
        kind = draw.randrange(3)
        if kind == 0:
            question, answer = symbol_pair(draw, frozenset())
        elif kind == 1:
            question, answer = natural_pair(draw, vocabulary)
        else:
            question = random_text(draw, printable, draw.randint(1, 30))
            answer = random_text(draw, printable, draw.randint(1, 12))
        whole = f"Question: {question}\nAnswer: \\boxed{{{answer}}}"
        prompt = tokenizer.encode(f"Question: {question}\nAnswer:").ids
        tokens = tokenizer.encode(whole).ids
        assert tokens[: len(prompt)] == prompt, whole
        assert tokenizer.decode(tokens, skip_special_tokens=False) == whole, whole
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    assert len(alphabet) == 256
    assert all(tokenizer.token_to_id(byte) is not None for byte in alphabet)


class Blocks:
    """Batches of packed rows, each a function of (seed, step, row)."""

    def __init__(
        self,
        novels: list[Novel],
        vocabulary: Vocabulary,
        tokenizer: Tokenizer,
        excluded: frozenset[str],
        length: int,
        seed: int,
    ):
        self.vocabulary = vocabulary
        self.tokenizer = tokenizer
        self.excluded = excluded
        self.length = length
        self.seed = seed
        self.end = tokenizer.token_to_id(END_OF_TEXT)
        self.prose = encode_novels(novels, tokenizer)

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return tokens and document numbers, each [rows, length + 1].

        A token sees the earlier tokens of its row that have the same document number.
        """
        rows = []
        for kind, count in MIXTURE:
            for row in range(count):
                draw = Random(f"{self.seed}/{kind}/{step}/{row}")
                if kind == "novels":
                    start = draw.randrange(len(self.prose) - self.length - 1)
                    tokens = self.prose[start : start + self.length + 1]
                    rows.append((tokens, np.zeros(self.length + 1, dtype=np.int64)))
                elif kind.endswith("recall"):
                    rows.append(self.recall_row(draw, kind.startswith("symbol"), step))
                else:
                    rows.append(self.repeat_row(draw, kind.startswith("symbol")))
        tokens, documents = zip(*rows, strict=True)
        return np.stack(tokens).astype(np.int64), np.stack(documents)

    def recall_row(self, draw: Random, symbolic: bool, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Lines that cannot see each other, most of them from the living pairs."""
        tokens: list[int] = []
        documents: list[int] = []
        while len(tokens) <= self.length:
            if draw.random() < FRESH_SHARE:
                pair = self.pair(draw, symbolic)
            else:
                slot = draw.randrange(SYMBOL_SLOTS if symbolic else NATURAL_SLOTS)
                pair = self.living_pair(slot, symbolic, step)
            line = self.tokenizer.encode(question_line(*pair)).ids
            # Later use starts a text from nothing or after one other token; so do these rows.
            if draw.random() < 0.5:
                line = [self.end, *line]
            documents += [documents[-1] + 1 if documents else 0] * len(line)
            tokens += line
        return np.array(tokens[: self.length + 1]), np.array(documents[: self.length + 1])

    def repeat_row(self, draw: Random, symbolic: bool) -> tuple[np.ndarray, np.ndarray]:
        """One document of a few pairs, each stated two or three times in mixed order."""
        tokens: list[int] = []
        while len(tokens) <= self.length:
            lines = [
                question_line(*self.pair(draw, symbolic))
                for _ in range(draw.randint(1, 7 if symbolic else 4))
            ]
            lines = [line for line in lines for _ in range(draw.choice((2, 2, 3)))]
            draw.shuffle(lines)
            for encoding in self.tokenizer.encode_batch(lines):
                tokens += encoding.ids
        return np.array(tokens[: self.length + 1]), np.zeros(self.length + 1, dtype=np.int64)

    def living_pair(self, slot: int, symbolic: bool, step: int) -> tuple[str, str]:
        """The pair that holds a slot at a step; replacements are spread evenly over time."""
        slots = SYMBOL_SLOTS if symbolic else NATURAL_SLOTS
        generation = (step + slot * PAIR_LIFETIME // slots) // PAIR_LIFETIME
        return self.pair(Random(f"{self.seed}/pair/{symbolic}/{slot}/{generation}"), symbolic)

    def pair(self, draw: Random, symbolic: bool) -> tuple[str, str]:
        """Draw a new pair of either kind."""
        if symbolic:
            return symbol_pair(draw, self.excluded)
        return natural_pair(draw, self.vocabulary)


def encode_novels(novels: list[Novel], tokenizer: Tokenizer) -> np.ndarray:
    """Encode novels one after the other, each closed by the end of the text; uint16 tokens."""
    pieces = []
    end = np.array([tokenizer.token_to_id(END_OF_TEXT)], dtype=np.uint16)
    for novel in novels:
        # Cutting at paragraphs keeps the encoder parallel without changing any token.
        paragraphs = re.findall(r"(?s).+?\n\n|.+", novel.text)
        for encoding in tokenizer.encode_batch_fast(paragraphs):
            pieces.append(np.array(encoding.ids, dtype=np.uint16))
        pieces.append(end)
    return np.concatenate(pieces)
