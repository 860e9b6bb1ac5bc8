"""The plain reference against other libraries, hand-computed numbers and itself."""

import copy
import math
from itertools import pairwise

import pytest
import torch

from reference import (
    adapters,
    allocation,
    distillation,
    divergences,
    metrics,
    online_ewc,
    osrm,
    recall,
    replay,
    synaptic_intelligence,
)
from reference.sequences import logits_of, pad_right, render, sft_loss, tokenise

TARGETS = ("q_proj", "v_proj", "down_proj")


def random_logits(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(*shape, generator=generator, dtype=torch.float64)


def randomise(model, seed=2):
    """Both factors of the current adapter away from zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for pair in adapters.factors(model).values():
            for factor in pair:
                factor.copy_(torch.randn(factor.shape, generator=generator, dtype=factor.dtype))


def test_sft_loss_is_that_of_transformers(model, sequences):
    input_ids, mask = pad_right(sequences, pad_id=0)
    labels = input_ids.masked_fill(~mask, -100)
    with torch.no_grad():
        output = model(input_ids=input_ids, attention_mask=mask.long(), labels=labels)
    loss = sft_loss(logits_of(model, input_ids, mask), input_ids, mask)
    # transformers computes its loss in float32.
    assert float(loss.detach()) == pytest.approx(float(output.loss), rel=1e-6)


def test_padding_never_counts():
    input_ids, mask = pad_right([[1, 2, 3], [4, 5]], pad_id=0)
    logits = random_logits(2, 3, 9)
    changed = logits.clone()
    changed[1, 1:] += 100 * torch.randn(2, 9, dtype=torch.float64)
    for loss in (
        lambda student: sft_loss(student, input_ids, mask),
        lambda student: replay.soft_replay_loss(logits.flip(0), student, mask, 2.0),
        lambda student: distillation.function_loss(logits.flip(0), student, mask, 5.0),
    ):
        assert torch.equal(loss(logits), loss(changed))
        assert loss(logits) > 0


def test_forward_kl_is_that_of_torch():
    teacher, student = random_logits(2, 4, 11), random_logits(2, 4, 11, seed=1)
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]], dtype=torch.bool)
    for loss, temperature in ((replay.soft_replay_loss, 2.0), (distillation.function_loss, 5.0)):
        predicted = mask[:, 1:]
        expected = torch.nn.functional.kl_div(
            torch.log_softmax(student[:, :-1][predicted] / temperature, -1),
            torch.log_softmax(teacher[:, :-1][predicted] / temperature, -1),
            reduction="batchmean",
            log_target=True,
        )
        torch.testing.assert_close(
            loss(teacher, student, mask, temperature), temperature**2 * expected
        )


def test_other_divergences():
    q = torch.tensor([[[0.5, 0.25, 0.25]]], dtype=torch.float64)
    p = torch.tensor([[[0.25, 0.5, 0.25]]], dtype=torch.float64)
    m = (q + p) / 2
    mask = torch.ones(1, 1, dtype=torch.bool)

    def plain_kl(a, b):
        return float((a * (a / b).log()).sum())

    reverse = divergences.reverse_kl(q.log(), p.log(), mask, 1.0)
    assert float(reverse) == pytest.approx(plain_kl(p, q))
    js = divergences.jensen_shannon(q.log(), p.log(), mask, 1.0)
    assert float(js) == pytest.approx((plain_kl(q, m) + plain_kl(p, m)) / 2)
    truncated = divergences.forward_kl(*divergences.truncate(q.log(), p.log(), 2), mask, 1.0)
    kept_q, kept_p = q[..., :2] / 0.75, p[..., :2] / 0.75
    assert float(truncated) == pytest.approx(plain_kl(kept_q, kept_p))
    whole = divergences.truncate(q.log(), p.log(), 3)
    torch.testing.assert_close(
        divergences.forward_kl(*whole, mask, 4.0), divergences.forward_kl(q.log(), p.log(), mask, 4)
    )


def test_seed_token_rows(model, untied_model):
    for instance, extra in ((model, 60), (untied_model, 64)):
        before = instance.get_input_embeddings().weight.detach().clone()
        before_output = instance.get_output_embeddings().weight.detach().clone()
        replay.initialise_seed_token(instance, seed_id=extra, vocabulary_size=extra)
        E = instance.get_input_embeddings().weight
        U = instance.get_output_embeddings().weight
        assert E.shape[0] == max(64, extra + 1) and not E.requires_grad
        torch.testing.assert_close(E[extra], before[:extra].mean(dim=0))
        torch.testing.assert_close(U[extra], before_output[:extra].mean(dim=0))
        assert torch.equal(E[:extra], before[:extra])


def test_generation_drops_the_empty_and_samples_the_nucleus(model):
    torch.manual_seed(3)
    with torch.no_grad():
        p = torch.softmax(model(input_ids=torch.tensor([[63]])).logits[0, -1] / 1.5, -1)
    most_likely, order = p.sort(descending=True)
    # Top-p keeps every token before which less than 0.9 has been gathered.
    nucleus = set(order[(most_likely.cumsum(0) - most_likely) < 0.9].tolist())
    eos = int(order[0])
    arguments = dict(
        attempts=40, temperature=1.5, top_p=0.9, max_new_tokens=5, eos_id=eos, pad_id=0
    )
    samples = replay.generate(model, 63, **arguments, batch_size=16)
    assert 0 < len(samples) < 40
    assert all(s[0] == 63 and 2 <= len(s) <= 6 and eos not in s[1:] for s in samples)
    assert {s[1] for s in samples} <= nucleus and len({s[1] for s in samples}) > 1
    with_eos = replay.generate(model, 63, **arguments, batch_size=40, keep_eos=True)
    assert len(with_eos) == 40 and any(s[-1] == eos for s in with_eos)


def test_paired_minibatches_recycle():
    orders = {(0, 0): [3, 1, 4, 0, 2], (0, 1): [1, 0, 2, 3, 4], (1, 0): [2, 4, 0, 1, 3]}
    drawn = replay.paired_minibatches("abcde", 2, 5, 1, lambda *name: orders[name])
    drawn += replay.paired_minibatches("abcde", 2, 3, 2, lambda *name: orders[name])
    drawn = ["".join(minibatch) for minibatch in drawn]
    assert drawn == ["db", "ea", "c", "ba", "cd", "db", "ea", "c", "ce", "ab", "d"]


def test_synaptic_intelligence_by_hand():
    """Two steps on the loss theta^2 / 2 with two coordinates, the second moving uphill."""
    theta = {"x": torch.tensor([2.0, 1.0], requires_grad=True)}
    path = {"x": torch.zeros(2)}
    values = [torch.tensor([2.0, 1.0]), torch.tensor([1.0, 1.5]), torch.tensor([0.5, 2.0])]
    for before, after in pairwise(values):
        with torch.no_grad():
            theta["x"].copy_(before)
        g = synaptic_intelligence.fit_gradient((theta["x"] ** 2).sum() / 2, theta)
        path = synaptic_intelligence.extend_path(path, g, {"x": before}, {"x": after})
    # Gradients (2, 1) then (1, 1.5), moves (-1, 0.5) then (-0.5, 0.5), Delta (-1.5, 1).
    assert path["x"].tolist() == [2.5, -1.25]
    Omega, star = synaptic_intelligence.consolidate(
        {"x": torch.tensor([1.0, 3.0])}, path, {"x": values[0]}, {"x": values[2]}, damping=0.25
    )
    assert Omega["x"].tolist() == [1.0 + 2.5 / (2.25 + 0.25), 3.0]
    assert star["x"].tolist() == [0.5, 2.0]
    assert (
        float(synaptic_intelligence.penalty(Omega, star, {"x": torch.tensor([1.5, 1.0])}))
        == 2.0 + 3.0
    )


def test_online_ewc(model, sequences):
    student = adapters.attach(model, TARGETS, rank=2, alpha=4)
    randomise(student)
    theta = adapters.coordinates(student)
    F = online_ewc.fisher(student, theta, sequences, budget=3)
    expected = {name: torch.zeros_like(value) for name, value in theta.items()}
    for sequence in sequences[:3]:
        student.zero_grad()
        ids = torch.tensor([sequence])
        logits = student(input_ids=ids).logits
        torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:]).backward()
        for name, value in theta.items():
            expected[name] += value.grad**2 / 3
    for name in theta:
        # transformers normalises in float32, and a squared gradient doubles the error.
        torch.testing.assert_close(F[name], expected[name], rtol=1e-4, atol=1e-9)

    doubled = {name: 2 * value for name, value in F.items()}
    back = online_ewc.normalise(doubled, online_ewc.mean_fisher(F))
    running = online_ewc.update(F, back, decay=0.5)
    for name in F:
        torch.testing.assert_close(running[name], 1.5 * F[name])
    moved = {name: value + 1 for name, value in theta.items()}
    total = sum(float(value.sum()) for value in running.values())
    assert float(online_ewc.penalty(running, theta, moved).detach()) == pytest.approx(total)


def test_effective_weight_is_pefts_merge(model):
    student = adapters.attach(model, TARGETS, rank=2, alpha=6)
    randomise(student)
    dense = {
        name: allocation.effective_weight(layer.get_base_layer().weight, A, B, scale=3.0)
        for (name, layer), (A, B) in zip(
            adapters.adapted(student).items(), adapters.factors(student).values(), strict=True
        )
    }
    dense = adapters.copied(dense)
    assert len(dense) == 6
    merged = student.merge_and_unload()
    for name, W in dense.items():
        torch.testing.assert_close(merged.get_submodule(name).weight.detach(), W)


def test_o_lora_adapters_represent_the_sum(model, sequences):
    base = copy.deepcopy(model)
    shapes = {
        name: (module.weight.shape[1], module.weight.shape[0])
        for name, module in base.named_modules()
        if name.endswith(TARGETS)
    }
    past = [
        {
            name: (random_logits(2, d_in, seed=task), random_logits(d_out, 2, seed=task + 5))
            for name, (d_in, d_out) in shapes.items()
        }
        for task in range(3)
    ]
    student = adapters.attach(model, TARGETS, rank=2, alpha=4, past=past)
    randomise(student)
    trainable = {name for name, p in student.named_parameters() if p.requires_grad}
    assert len(trainable) == 12 and not any(adapters.ACCUMULATED in name for name in trainable)
    current = adapters.factors(student)
    for name in shapes:
        W_0 = base.get_submodule(name).weight.detach()
        A, B = allocation.concatenate([task[name] for task in past])
        summed = allocation.o_lora_weight(W_0, [*(t[name] for t in past), current[name]], 2.0)
        torch.testing.assert_close(
            allocation.effective_weight(W_0 + 2.0 * (B @ A), *current[name], 2.0), summed
        )
        base.get_submodule(name).weight.data = summed.detach()
    input_ids, mask = pad_right(sequences, pad_id=0)
    student.eval()
    torch.testing.assert_close(
        logits_of(student, input_ids, mask),
        logits_of(base, input_ids, mask),
        rtol=1e-4,
        atol=1e-4,
    )


def test_o_lora_penalties_by_hand():
    past = {"m": torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]])}
    current = {"m": torch.tensor([[3.0, -4.0, 12.0]])}
    assert float(allocation.overlap(past, current)) == 3 + 8
    assert allocation.overlap({}, current) == 0
    assert float(allocation.factor_norm({"m": (current["m"], torch.zeros(2, 1))})) == 13
    projected = allocation.project_gradient(current["m"], past["m"])
    torch.testing.assert_close(projected, torch.tensor([[0.0, 0.0, 12.0]]))


def test_osrm_start_is_orthogonal_to_past_features():
    H = random_logits(3, 10)
    rows = osrm.smallest_right_singular_vectors(H, rank=4)
    torch.testing.assert_close(rows @ rows.T, torch.eye(4, dtype=torch.float64))
    assert float((rows @ H.T).abs().max()) < 1e-12
    kaiming = random_logits(4, 10, seed=1)
    norms = osrm.initial_A(kaiming, rows).norm(dim=1)
    torch.testing.assert_close(norms, kaiming.norm(dim=1).mean().expand(4))
    # Without enough null directions, the remaining ones carry the least energy.
    tall = random_logits(20, 10)
    energy = (tall @ osrm.smallest_right_singular_vectors(tall, 2).T).norm(dim=0)
    torch.testing.assert_close(energy, torch.linalg.svdvals(tall)[-2:])


def test_osrm_features_count_padding_and_weigh_batches_equally(model, sequences):
    student = adapters.attach(model, ("q_proj",), rank=2, alpha=4)
    randomise(student)
    means = osrm.feature_means(
        student, adapters.adapted(student), sequences, budget=3, batch_size=2, pad_id=0
    )
    first = model.model.layers[0]
    expected = []
    for batch in (sequences[:2], sequences[2:3]):
        input_ids, _ = pad_right(batch, pad_id=0)
        h = first.input_layernorm(model.get_input_embeddings()(input_ids))
        expected.append(h.reshape(-1, 16).mean(dim=0))
    torch.testing.assert_close(
        means["model.layers.0.self_attn.q_proj"], (expected[0] + expected[1]).detach() / 2
    )


def test_first_box():
    assert recall.first_box(r" \boxed{ a{b}c } \boxed{d}") == "a{b}c"
    assert recall.first_box(r" \boxed{a{b}") is None
    assert recall.first_box(" no box") is None
    assert recall.first_box(r"\boxed{}") == ""
    assert recall.is_correct("Ab", "x", ["Ab"])
    assert not recall.is_correct("ab", "Ab")
    assert recall.is_correct("ab", "Ab", ignore_case=True)
    assert not recall.is_correct(None, "")


class CharacterTokenizer:
    """Characters as ids; enough of the interface for recall."""

    eos_token_id = None
    pad_token_id = 0
    alphabet = "\0ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz :\n\\{}?01"

    def __call__(self, text, add_special_tokens):
        assert not add_special_tokens
        return {"input_ids": [self.alphabet.index(character) for character in text]}

    def decode(self, ids, **_):
        return "".join(self.alphabet[int(i)] for i in ids)


def test_recall_of_a_learned_item(model):
    tokenizer = CharacterTokenizer()
    ids = tokenise(tokenizer, render("k", "v1"), seed_id=63)
    assert ids[0] == 63 and tokenizer.decode(ids[1:]) == "Question: k\nAnswer: \\boxed{v1}"
    input_ids, mask = pad_right([ids], pad_id=0)
    model.requires_grad_(True)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(40):
        optimizer.zero_grad()
        sft_loss(logits_of(model, input_ids, mask), input_ids, mask).backward()
        optimizer.step()
    items = [("k", "V1", []), ("k", "x", ["v1"]), ("k", "x", [])]
    arguments = dict(seed_id=63, max_new_tokens=12)
    assert recall.accuracy(model, tokenizer, items, **arguments) == pytest.approx(1 / 3)
    assert recall.accuracy(model, tokenizer, items, ignore_case=True, **arguments) == (
        pytest.approx(2 / 3)
    )


def test_metrics_by_hand():
    M = [[1.0], [0.5, 0.8], [0.6, 0.2, 1.0]]
    assert metrics.final(M) == pytest.approx(0.6)
    assert metrics.diag(M) == pytest.approx(2.8 / 3)
    assert metrics.forget(M) == pytest.approx((0.4 + 0.6) / 2)
    assert metrics.retention(M, 1) == pytest.approx(0.35)
    assert metrics.half_life(M) == 1
    assert metrics.half_life([[1.0], [0.5, 1.0]]) is None
    assert math.isclose(metrics.retention(M, 2), 0.6)
