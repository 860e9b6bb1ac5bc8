"""How llama.cpp turns an exported model into a GGUF file; Holdfast writes none."""

from __future__ import annotations

import shlex

_EMBEDDED = """
No GGUF file can be made of it: llama.cpp's converter knows the tensors of the embedded model, and \
not its tokenizer.
"""

_SECTION = """
For llama.cpp, Ollama and LM Studio, llama.cpp's converter writes a GGUF file, if it knows the \
architecture and the tokenizer{why}:

```console
{commands}
```

Ask that file by chat (`--jinja`), whose template{first} asks as it was taught.
"""

# The converter knows a tokenizer by its tokens of a text, special tokens included.
_COPY = "for_gguf"
_BARE = (
    f"import json; path = '{_COPY}/tokenizer.json'; tokens = json.load(open(path)); "
    "tokens['post_processor'] = None; json.dump(tokens, open(path, 'w'))"
)


def command(out: str) -> str:
    """The command of llama.cpp that writes ``model.gguf``. out: a complete model's directory."""
    return f"python convert_hf_to_gguf.py {shlex.quote(out)} --outfile model.gguf"


def section(out: str, base: str, replayed: bool, repository: str | None = None) -> str:
    """The part of a card that says how to make a GGUF file.

    out: the model's directory; base: the backbone's name; replayed: whether the tokenizer puts the
    replay token first, behind which the converter does not know it again; repository: of the hub,
    from which the model is fetched instead.
    """
    if base == "embedded":
        return _EMBEDDED
    commands = []
    if repository is not None:
        commands.append(f"hf download {shlex.quote(repository)} --local-dir {_COPY}")
    elif replayed:
        commands.append(f"cp -r {shlex.quote(out)} {_COPY}")
    if replayed:
        commands.append(f'python -c "{_BARE}"')
    commands.append(command(_COPY if commands else out))
    return _SECTION.format(
        commands="\n".join(commands),
        why=", which it does only where no replay token comes first" if replayed else "",
        first=" writes the replay token and" if replayed else "",
    )
