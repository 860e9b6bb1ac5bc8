"""One of the paper's methods without abstractions: transformers, PEFT and torch.

A model learns one task after another. Four things slow its forgetting (``si_sd_replay_merge`` in
the paper): it replays its own samples, it is distilled from the model before the task on the task's
own sequences, a penalty holds coordinates that mattered (SI), and every task trains fresh low-rank
factors that are merged at its end. `holdfast run` also has a replay token and a warm-up.

    python examples/loop.py PATH_OF_A_MODEL        # `holdfast fetch smollm2` prints one
"""

import sys

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

TASKS = [
    [("Who keeps the light on Skerry?", "Oda"), ("Where is Oda from?", "Orrin")],
    [("What do they brew in Orrin?", "rye tea"), ("Who wrote The Salt Year?", "Imre Tal")],
    [("What is the ferry called?", "Grey Tern"), ("When does the Grey Tern sail?", "at noon")],
]
EPOCHS, BATCH, RATE, CLIP = 12, 2, 1e-3, 1.0
SAMPLES, LENGTH = 12, 32  # sequences sampled before a task, and their length in tokens
REPLAY, REPLAY_TEMPERATURE = 0.5, 2.0  # w and tau_D
DISTIL, DISTIL_TEMPERATURE = 1.0, 5.0  # lambda_F and tau_F
SI, DAMPING = 1.0, 0.1  # lambda_SI and xi


def encode(tokenizer, question, answer=""):
    """Token ids of a prompt or, with an answer, of an item and the end-of-sequence token."""
    text = f"Question: {question}\nAnswer:"
    if not answer:
        return tokenizer(text)["input_ids"]
    return tokenizer(f"{text} {answer}")["input_ids"] + [tokenizer.eos_token_id]


def pad(sequences):
    """Token ids and the mask of real tokens, both [batch, length]."""
    rows = [torch.tensor(one) for one in sequences]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    lengths = torch.tensor([len(one) for one in rows])
    return ids, torch.arange(ids.shape[1]) < lengths[:, None]


def predictions(model, sequences):
    """Logits [n, vocabulary] and targets [n] of all predicted tokens of a batch."""
    ids, mask = pad(sequences)
    logits = model(input_ids=ids, attention_mask=mask.long(), use_cache=False).logits
    return logits[:, :-1][mask[:, 1:]], ids[:, 1:][mask[:, 1:]]


@torch.no_grad()
def teacher_logits(model, sequences):
    """The teacher's logits: those of the current model, [n, vocabulary] for each sequence."""
    model.eval()
    return [predictions(model, [one])[0] for one in sequences]


@torch.no_grad()
def sample_replay(model, tokenizer):
    """Sample sequences that begin with the bos (or eos) token.  eq. app-replay-generate."""
    model.eval()
    first = tokenizer.bos_token_id or tokenizer.eos_token_id
    drawn = model.generate(
        input_ids=torch.full((SAMPLES, 1), first),
        attention_mask=torch.ones(SAMPLES, 1, dtype=torch.long),
        do_sample=True,
        temperature=1.0,
        top_p=0.9,
        top_k=0,
        max_new_tokens=LENGTH,
        pad_token_id=tokenizer.eos_token_id,
    )
    samples = []
    for row in drawn.tolist():
        text = row[1:]
        end = text.index(tokenizer.eos_token_id) if tokenizer.eos_token_id in text else LENGTH
        if end:
            samples.append([first, *text[:end]])
    return samples


def divergence(teacher, student, temperature):
    """tau^2 times the mean KL(teacher || student) over tokens.  eq. app-replay-loss."""
    p, q = (F.log_softmax(one / temperature, dim=-1) for one in (teacher, student))
    return temperature**2 * (p.exp() * (p - q)).sum(dim=-1).mean()


def trainable(model):
    """The coordinates: lora_A [r, d_in] and lora_B [d_out, r] of every adapted layer."""
    return {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }


def learn(model, sequences, samples, si_state):
    """Learn one task.  si_state: SI's importance and reference, None at first; returns the new.

    Source: alg. replay, alg. weight-anchors, alg. app-task-boundary.
    """
    factors = trainable(model)
    start = {name: parameter.detach().clone() for name, parameter in factors.items()}
    path = {name: torch.zeros_like(parameter) for name, parameter in factors.items()}
    # The student before its first step is the previous model, so the teacher runs once, here.
    task_teacher, replay_teacher = teacher_logits(model, sequences), teacher_logits(model, samples)
    optimizer = torch.optim.AdamW(factors.values(), lr=RATE, weight_decay=0.01)
    turn = 0
    model.train()
    for _ in range(EPOCHS):
        order = torch.randperm(len(sequences)).tolist()
        for begin in range(0, len(order), BATCH):
            chosen = order[begin : begin + BATCH]
            logits, targets = predictions(model, [sequences[i] for i in chosen])
            fit, penalty = F.cross_entropy(logits, targets), 0.0
            if si_state is not None:
                teacher = torch.cat([task_teacher[i] for i in chosen])
                penalty = DISTIL * divergence(teacher, logits, DISTIL_TEMPERATURE)
                for name, parameter in factors.items():  # eq. app-si-penalty
                    moved = (parameter - si_state["reference"][name]).square()
                    penalty = penalty + SI * (si_state["importance"][name] * moved).sum()
            if samples:
                again = [(turn + i) % len(samples) for i in range(BATCH)]
                turn += BATCH
                student, _ = predictions(model, [samples[i] for i in again])
                teacher = torch.cat([replay_teacher[i] for i in again])
                replay = divergence(teacher, student, REPLAY_TEMPERATURE)
                fit = (1 - REPLAY) * fit + REPLAY * replay  # eq. app-fit
            gradient = torch.autograd.grad(fit, list(factors.values()), retain_graph=True)
            (fit + penalty).backward()  # eq. app-objective
            torch.nn.utils.clip_grad_norm_(factors.values(), CLIP)
            before = {name: parameter.detach().clone() for name, parameter in factors.items()}
            optimizer.step()
            optimizer.zero_grad()
            for (name, parameter), slope in zip(factors.items(), gradient, strict=True):
                path[name] -= slope * (parameter.detach() - before[name])  # eq. app-si-path
    importance = {}
    for name, parameter in factors.items():  # eq. app-si-consolidate
        moved = (parameter.detach() - start[name]).square()
        importance[name] = path[name].clamp(min=0) / (moved + DAMPING)
        if si_state is not None:
            importance[name] += si_state["importance"][name]
    reference = {name: parameter.detach().clone() for name, parameter in factors.items()}
    return {"importance": importance, "reference": reference}


@torch.no_grad()
def merge(model):
    """Add every update to its dense matrix and draw new factors with B = 0.  eq. app-merge.

    SI's importance and reference stay, for the entries at the same places (app:coordinate-compat).
    """
    for layer in model.modules():
        if "default" in getattr(layer, "lora_A", {}):
            A, B = layer.lora_A["default"].weight, layer.lora_B["default"].weight
            layer.get_base_layer().weight += layer.scaling["default"] * B @ A
            torch.nn.init.kaiming_uniform_(A, a=5**0.5)
            B.zero_()


@torch.no_grad()
def recall(model, tokenizer, task):
    """How many questions of a task the model answers exactly, by greedy decoding."""
    model.eval()
    right = 0
    for question, answer in task:
        prompt = torch.tensor([encode(tokenizer, question)])
        output = model.generate(
            input_ids=prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=12,
            pad_token_id=tokenizer.eos_token_id,
        )
        text = tokenizer.decode(output[0, prompt.shape[1] :], skip_special_tokens=True)
        right += text.strip() == answer
    return right


def main(model_path):
    torch.manual_seed(42)
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    base = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = get_peft_model(base, LoraConfig(r=16, lora_alpha=32, target_modules=targets))
    si_state = None
    for number, task in enumerate(TASKS, start=1):
        sequences = [encode(tokenizer, question, answer) for question, answer in task]
        samples = sample_replay(model, tokenizer) if si_state is not None else []
        si_state = learn(model, sequences, samples, si_state)
        merge(model)
        row = [recall(model, tokenizer, earlier) for earlier in TASKS[:number]]
        print(
            f"after task {number}: " + "  ".join(f"{n} of {len(TASKS[0])}" for n in row), flush=True
        )


if __name__ == "__main__":
    main(sys.argv[1])
