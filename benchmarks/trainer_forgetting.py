"""Measure what TRL's SFTTrainer forgets over a stream of tasks, alone and with anchors.

    python -m benchmarks.trainer_forgetting MODEL --tasks 6 --items 8

MODEL: a directory or a name of the hub. Every method starts from the same factors and sees the
same batches; answers are decoded greedily.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer  # type: ignore[attr-defined]  # it loads its names lazily

from holdfast.evaluation.text import everyday_passages
from holdfast.integrations.hf_trainer import with_anchors
from holdfast.memory.evaluation.drift import text_bits
from holdfast.memory.evaluation.probes import everyday_questions
from holdfast.streams import StreamConfig, load_stream
from holdfast.streams.item import evenly, says

METHODS: dict[str, tuple[list[str], str]] = {
    "SFTTrainer alone": ([], "shared"),
    "merge": ([], "merge"),
    "si": (["si"], "shared"),
    "online_ewc": (["online_ewc"], "shared"),
    "kfac": (["kfac"], "shared"),
    "sd": (["sd"], "shared"),
    "replay": (["replay"], "shared"),
    "pairs": (["pairs"], "shared"),
    "general": (["general"], "shared"),
    "general, as chats": (["general"], "shared"),
    "sd + general": (["sd", "general"], "shared"),
    "kfac + replay + merge": (["kfac", "replay"], "merge"),
    "kfac + replay + general + merge": (["kfac", "replay", "general"], "merge"),
    "sd + general, as chats": (["sd", "general"], "shared"),
}
EVERYDAY = 60  # everyday questions asked, evenly spread over Holdfast's own


def language(model: Any, tokenizer: Any) -> tuple[float, float | None]:
    """Bits per byte of everyday texts, and the fraction of everyday questions answered in a chat.

    The fraction is None if the model has no chat template.
    """
    model.eval()
    passages = [passage.text for passage in everyday_passages()]
    bits = sum(text_bits(model, tokenizer, text) for text in passages)
    size = sum(len(text.encode()) for text in passages)
    if tokenizer.chat_template is None:
        return bits / size, None
    questions = evenly(everyday_questions(), EVERYDAY)
    right = 0
    for question in questions:
        messages = [{"role": "user", "content": question.question}]
        batch = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        ids = model.generate(
            **batch, do_sample=False, max_new_tokens=32, pad_token_id=tokenizer.pad_token_id
        )
        reply = tokenizer.decode(ids[0, batch["input_ids"].shape[1] :], skip_special_tokens=True)
        right += says(reply, question.answers)
    return bits / size, right / len(questions)


def recalled(model: Any, tokenizer: Any, rows: list[dict[str, str]]) -> float:
    """The fraction of questions answered exactly."""
    model.eval()
    tokenizer.padding_side = "left"
    batch = tokenizer([row["prompt"] for row in rows], return_tensors="pt", padding=True)
    ids = model.generate(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        do_sample=False,
        max_new_tokens=12,
        pad_token_id=tokenizer.pad_token_id,
    )
    tokenizer.padding_side = "right"
    texts = tokenizer.batch_decode(ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    right = [
        text.strip() == row["completion"].strip() for text, row in zip(texts, rows, strict=True)
    ]
    return sum(right) / len(right)


def learn(
    name: str, place: str, tokenizer: Any, tasks: list[list[dict[str, str]]], epochs: int
) -> tuple[list[list[float]], tuple[float, float | None]]:
    """Train on all tasks; return recall by row after each, and ``language`` after the last."""
    names, rule = METHODS[name]
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32)
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(base, lora)
    sampling = {"samples": 64, "max_new_tokens": 48, "temperature": 1.0}
    anchored: Any = {"anchors": names, "allocation": rule, "sampling": sampling}
    if name.endswith("as chats"):
        anchored["begin_with"] = "chat"
    matrix = []
    for number, rows in enumerate(tasks, start=1):
        with tempfile.TemporaryDirectory() as folder:
            args = SFTConfig(
                folder,
                num_train_epochs=epochs,
                per_device_train_batch_size=8,
                learning_rate=1e-3,
                report_to="none",
                use_cpu=not torch.cuda.is_available(),
                bf16=torch.cuda.is_available(),
                gradient_checkpointing=False,
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
                seed=number,
            )
            dataset = Dataset.from_list(rows)
            options = {"model": model, "args": args, "train_dataset": dataset}
            trainer = with_anchors(SFTTrainer)(
                **options, processing_class=tokenizer, anchored=anchored
            )
            trainer.train()
        anchored = trainer.anchored
        matrix.append([recalled(model, tokenizer, earlier) for earlier in tasks[:number]])
    return matrix, language(model, tokenizer)


def language_columns(bits: float, everyday: float | None) -> str:
    """The two columns of the table for a result of ``language``."""
    return f"{bits:.3f} | {'' if everyday is None else f'{everyday:.0%}'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--tasks", type=int, default=6)
    parser.add_argument("--items", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--methods", default=";".join(METHODS), help="names, by semicolons")
    options = parser.parse_args()
    config = StreamConfig(name="symbol_qa", tasks=options.tasks, items_per_task=options.items)
    tasks = [
        [{"prompt": f"{item.question}\n", "completion": item.answer} for item in task.items]
        for task in load_stream(config).tasks
    ]
    print(
        "| method | Final | right after its task | text, bits per byte | everyday | seconds |\n"
        "|---|---|---|---|---|---|"
    )
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    untouched = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    columns = language_columns(*language(untouched, tokenizer))
    print(f"| *untouched* | | | {columns} | |", flush=True)
    for name in options.methods.split(";"):
        began = time.perf_counter()
        matrix, spoken = learn(name, options.model, tokenizer, tasks, options.epochs)
        final = sum(matrix[-1]) / len(matrix[-1])
        fresh = sum(row[-1] for row in matrix) / len(matrix)
        seconds = time.perf_counter() - began
        print(
            f"| {name} | {final:.0%} | {fresh:.0%} | {language_columns(*spoken)} | {seconds:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
