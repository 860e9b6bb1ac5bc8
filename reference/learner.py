"""One whole task, from its arrival to the boundary after it."""

import copy

import torch

from reference import (
    adapters,
    allocation,
    curvature,
    online_ewc,
    osrm,
    pairs,
    synaptic_intelligence,
)
from reference.optimisation import optimise
from reference.state import Result


def run_task(state, settings, task):
    """Learn one task and update ``state`` in place. Source: alg:app-task-boundary."""
    student = open_workspace(state, settings, task)
    teacher = None
    replay_minibatches = None
    if state.completed == 0 and settings.general_strength is not None:
        state.untouched = copy.deepcopy(student).requires_grad_(False).eval()
    needs_teacher = settings.replay_weight is not None or settings.function_strength is not None
    if state.completed > 0 and needs_teacher:
        # Under every rule the student before its first step is the model after the previous
        # task: a fresh workspace has B_t = 0.
        teacher = copy.deepcopy(student).requires_grad_(False).eval()
    if state.completed > 0 and settings.replay_weight is not None:
        replay_minibatches = task.replay_minibatches
        if callable(replay_minibatches):
            replay_minibatches = replay_minibatches(teacher)
        assert replay_minibatches is not None

    start = adapters.copied(adapters.coordinates(student))
    hold_curvature(student, state, settings, task)
    hold_positions(student, state, settings, task)
    path, steps = optimise(student, teacher, replay_minibatches, state, settings, task)
    del teacher

    student.eval()
    consolidate_weight_anchors(student, start, path, state, settings, task)
    if settings.allocation == "osrm":
        means = osrm.feature_means(
            student,
            adapters.adapted(student),
            task.sequences,
            settings.feature_budget,
            settings.feature_batch_size,
            settings.pad_id,
        )
        for module, mean in means.items():
            state.features.setdefault(module, []).append(mean)
    return close_workspace(student, state, settings, steps)


def hold_curvature(student, state, settings, task):
    """Before the first step: set the S and G of the curvature penalty, and its strength."""
    state.start, state.held = adapters.copied(adapters.factors(student)), None
    if settings.curvature_strength is None:
        return
    written = None
    if task.written:
        written = curvature.kronecker_factors(
            student,
            adapters.adapted(student),
            task.written,
            task.uniforms,
            settings.curvature_temperature,
        )
    past_items = min(task.past_items, settings.curvature_most_items)
    state.held = written
    if settings.curvature_source == "own":
        if state.completed == 0:
            state.general_curvature = written
        state.held = curvature.mean(
            state.general_curvature, settings.general, state.curvature, past_items
        )
    state.held_strength = settings.curvature_strength
    if settings.curvature_per_item:
        state.held_strength *= (past_items + settings.general) / len(task.sequences)


def hold_positions(student, state, settings, task):
    """Before the first step: set the paired penalty's weights; on task 1 take general positions."""
    if settings.pairs_strength is None:
        return
    if state.completed == 0:
        state.dense = {
            module: layer.get_base_layer().weight.detach().clone()
            for module, layer in adapters.adapted(student).items()
        }
        if settings.general and settings.pairs_general:
            state.general_positions = pairs.taken(
                student,
                adapters.adapted(student),
                task.written,
                *task.position_draws["general"],
                settings.pairs_general,
                settings.curvature_temperature,
                (),
                1.0,
                state.dense,
            )
    whole = task.past_items + settings.general * bool(state.general_positions)
    state.pairs_strength = settings.pairs_strength * whole / len(task.sequences)
    state.pairs_share = task.past_items / max(1, whole)


def open_workspace(state, settings, task):
    """The student before its first step."""
    student = adapters.attach(
        copy.deepcopy(state.backbone),
        settings.target_modules,
        settings.rank,
        settings.alpha,
        settings.dropout,
        state.past,
    )
    if task.initial_factors is not None:
        adapters.write(student, task.initial_factors)
    if state.completed > 0 and settings.allocation == "shared":
        adapters.write(student, state.factors)
    if state.completed > 0 and settings.allocation == "osrm":
        fresh = {}
        for module, (A, B) in adapters.factors(student).items():
            if task.osrm_bases is not None:
                V_min_transposed = task.osrm_bases[module]
            else:
                H = osrm.stack(state.features[module])
                V_min_transposed = osrm.smallest_right_singular_vectors(H, settings.rank)
            fresh[module] = (osrm.initial_A(A, V_min_transposed), torch.zeros_like(B))
        adapters.write(student, fresh)
    return student


def consolidate_weight_anchors(student, start, path, state, settings, task):
    """Update the states of SI, curvature, pairs and EWC, in the coordinates of this task.

    Source: alg:weight-anchors.
    """
    theta = adapters.coordinates(student)
    end = adapters.copied(theta)
    zeros = {name: torch.zeros_like(value) for name, value in end.items()}
    if settings.si_strength is not None:
        state.importance, state.reference = synaptic_intelligence.consolidate(
            state.importance or zeros, path, start, end, settings.si_damping
        )
    if settings.curvature_strength is not None and settings.curvature_source == "own":
        own = curvature.kronecker_factors(
            student,
            adapters.adapted(student),
            task.sequences,
            task.own_uniforms,
            settings.curvature_temperature,
            task.prompts,
            settings.curvature_questions,
        )
        before = min(task.past_items, settings.curvature_most_items)
        state.curvature = curvature.mean(state.curvature, before, own, len(task.sequences))
    if settings.pairs_strength is not None:
        rho = settings.alpha / settings.rank
        state.dense = {
            module: state.dense[module]
            + rho * (B @ A - state.start[module][1] @ state.start[module][0])
            for module, (A, B) in adapters.copied(adapters.factors(student)).items()
        }
        own = pairs.taken(
            student,
            adapters.adapted(student),
            task.sequences,
            *task.position_draws["own"],
            settings.pairs_kept,
            settings.curvature_temperature,
            task.prompts,
            settings.curvature_questions,
            state.dense,
        )
        state.positions = pairs.smallest([*state.positions, *own], settings.pairs_kept)
    if settings.ewc_strength is not None:
        F = online_ewc.fisher(student, theta, task.sequences, settings.fisher_budget)
        if state.first_fisher_mean is None:
            state.first_fisher_mean = online_ewc.mean_fisher(F)
        normalised = online_ewc.normalise(F, state.first_fisher_mean)
        state.fisher = online_ewc.update(state.fisher or zeros, normalised, settings.ewc_decay)
        state.reference = end


def close_workspace(student, state, settings, steps):
    """Keep, merge or append the trained factors; ``open_workspace`` makes the next task's."""
    final = adapters.copied(adapters.factors(student))
    rho = settings.alpha / settings.rank
    dense = {}
    for module, layer in adapters.adapted(student).items():
        W = layer.get_base_layer().weight.detach()
        if settings.allocation == "o_lora":
            factors = [task[module] for task in state.past] + [final[module]]
            dense[module] = allocation.o_lora_weight(W, factors, rho)
        else:
            dense[module] = allocation.effective_weight(W, *final[module], rho)

    model = student
    if settings.allocation == "shared":
        state.factors = final
    elif settings.allocation == "o_lora":
        state.past = [*state.past, final]
    else:
        model = student.merge_and_unload()
        state.backbone = model
    state.completed += 1
    return Result(model, final, dense, steps)
