"""Fit the gate of the default model and put it into the package, so that nobody waits for it.

    python scripts/ship_gate.py

Run it again whenever the library of relations or the fit changes; a test marked ``real`` fails
until then.
"""

from __future__ import annotations

from holdfast.memory.gate_tuning import SHIPPED, fit, tuning_key, write_tuning
from holdfast.model.chat import chat_form
from holdfast.model.load import load_model
from holdfast.model.reading import PromptReader
from holdfast.model.sources.fetch import fetch
from holdfast.model.sources.fingerprint import fingerprint


def main() -> None:
    directory = fetch("smollm2")
    model, tokenizer = load_model(directory)
    reader = PromptReader(model, chat_form(tokenizer))
    tuning = fit(reader, tuning_key(reader.form, fingerprint(directory)))
    for path in SHIPPED.glob("*.safetensors"):
        path.unlink()
    write_tuning(SHIPPED, tuning)


if __name__ == "__main__":
    main()
