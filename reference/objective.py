"""The complete objective of one minibatch, and the gradients of one accumulation window."""

import torch

from reference import adapters, allocation, curvature, online_ewc, pairs, synaptic_intelligence
from reference.distillation import function_loss
from reference.replay import soft_replay_loss
from reference.sequences import logits_of, pad_right, sft_loss


def minibatch_terms(student, teacher, minibatch, replay_minibatch, state, settings, general=None):
    """Every term of one minibatch except O-LoRA's, unweighted; and `current`, `fit` and `total`.

    minibatch, replay_minibatch: lists of token id lists; replay_minibatch None means a_D = 0.
    general: sequences of general text, None if no anchor uses it.
    Source: eq. app-fit, app-objective.
    """
    input_ids, mask = pad_right(minibatch, settings.pad_id, student.device)
    student_logits = logits_of(student, input_ids, mask)
    terms = {"sft": sft_loss(student_logits, input_ids, mask)}
    if replay_minibatch is None:
        terms["current"] = terms["fit"] = terms["sft"]
    else:
        replay_ids, replay_mask = pad_right(replay_minibatch, settings.pad_id, student.device)
        with torch.no_grad():
            teacher_replay = logits_of(teacher, replay_ids, replay_mask)
        student_replay = logits_of(student, replay_ids, replay_mask)
        terms["replay"] = soft_replay_loss(
            teacher_replay, student_replay, replay_mask, settings.replay_temperature
        )
        w = settings.replay_weight
        terms["current"] = (1 - w) * terms["sft"]
        terms["fit"] = terms["current"] + w * terms["replay"]

    total = terms["fit"]
    if settings.function_strength is not None and teacher is not None:
        with torch.no_grad():
            teacher_logits = logits_of(teacher, input_ids, mask)
        terms["function"] = function_loss(
            teacher_logits, student_logits, mask, settings.function_temperature
        )
        total = total + settings.function_strength * terms["function"]
    if general is not None:
        ids, mask = pad_right(general, settings.pad_id, student.device)
        with torch.no_grad():
            untouched_logits = logits_of(state.untouched, ids, mask)
        # Holdfast's own: the same loss from the model before task 1, on text it sampled.
        terms["general"] = function_loss(
            untouched_logits, logits_of(student, ids, mask), mask, settings.general_temperature
        )
        total = total + settings.general_strength * terms["general"]
    theta = adapters.coordinates(student)
    rho = settings.alpha / settings.rank
    if state.importance is not None:
        terms["si"] = synaptic_intelligence.penalty(state.importance, state.reference, theta)
        total = total + settings.si_strength * terms["si"]
    if state.fisher is not None:
        terms["ewc"] = online_ewc.penalty(state.fisher, state.reference, theta)
        total = total + settings.ewc_strength * terms["ewc"]
    if state.held is not None:
        terms["kfac"] = curvature.penalty(student, state.start, state.held, rho)
        total = total + state.held_strength * terms["kfac"]
    if state.positions or state.general_positions:
        terms["pairs"] = 0.0
        parts = (
            (state.positions, state.pairs_share),
            (state.general_positions, 1 - state.pairs_share),
        )
        for positions, share in parts:
            if positions:
                form = pairs.penalty(student, state.start, state.dense, positions, rho)
                terms["pairs"] = terms["pairs"] + share * form
        total = total + state.pairs_strength * terms["pairs"]
    terms["total"] = total
    return terms


def o_lora_terms(student, state):
    """O-LoRA's two unweighted regularizers. Source: eq. app-olora-orth, app-olora-l2."""
    current = adapters.factors(student)
    return {
        "overlap": allocation.overlap(
            past_A(state), {module: A for module, (A, _) in current.items()}
        ),
        "factor_norm": allocation.factor_norm(current),
    }


def past_A(state):
    """module -> A_<t; empty on the first task."""
    if not state.past:
        return {}
    return {
        module: allocation.concatenate([task[module] for task in state.past])[0]
        for module in state.past[0]
    }


def backpropagate(student, teacher, pairs, state, settings):
    """Leave the unclipped gradient of the complete objective over one window in `.grad`.

    pairs: (minibatch, replay minibatch or None), with general text as a third if an anchor uses
    it; `settings.accumulation` of them, or fewer in an epoch's last window. Returns SI's fit
    gradient, None without SI, and the mean of each term.
    Source: eq. app-objective, alg:weight-anchors.
    """
    theta = adapters.coordinates(student)
    captured = {name: torch.zeros_like(value) for name, value in theta.items()}
    sums = {}
    for minibatch, replay_minibatch, *general in pairs:
        terms = minibatch_terms(
            student, teacher, minibatch, replay_minibatch, state, settings, *general
        )
        if settings.si_strength is not None:
            # Only the current data under O-LoRA, the whole fit term elsewhere (app:composition).
            tracked = terms["current"] if settings.allocation == "o_lora" else terms["fit"]
            gradient = synaptic_intelligence.fit_gradient(tracked / settings.accumulation, theta)
            captured = {name: captured[name] + gradient[name] for name in theta}
        (terms["total"] / settings.accumulation).backward()
        for name, value in terms.items():
            sums[name] = sums.get(name, 0.0) + value.item()
    means = {name: value / len(pairs) for name, value in sums.items()}

    # The gradient of an incomplete window is the mean over its minibatches too.
    adjustment = settings.accumulation / len(pairs)
    for name, value in theta.items():
        value.grad.mul_(adjustment)
        captured[name] = captured[name] * adjustment

    if settings.allocation == "o_lora":
        # Once a step and not divided by the accumulation factor (eq. app-olora-l2 and below).
        terms = o_lora_terms(student, state)
        penalty = (
            settings.overlap_strength * terms["overlap"]
            + settings.norm_strength * terms["factor_norm"]
        )
        penalty.backward()
        means.update({name: value.item() for name, value in terms.items()})
        means["total"] += penalty.item()
        if settings.project_gradient:
            for module, past in past_A(state).items():
                A = theta[f"{module}.A"]
                A.grad = allocation.project_gradient(A.grad, past)
    return captured if settings.si_strength is not None else None, means
