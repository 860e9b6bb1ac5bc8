"""Answers for settings that other training libraries have and Holdfast calls otherwise or lacks.

The names are those of transformers, TRL, PEFT, accelerate, bitsandbytes, Axolotl, LLaMA-Factory,
Avalanche and Mammoth. A setting of Holdfast is written in an answer as it is on the command line,
``optim.lr=1e-4``; the tests check that every one of them is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping

_ANSWERS = {
    # The optimiser and its steps.
    "learning_rate peak_lr base_lr max_lr": "write optim.lr=1e-4",
    "num_train_epochs num_epochs n_epochs train_epochs": (
        "write optim.epochs=3; they are counted for each task"
    ),
    "max_steps num_train_steps total_steps max_train_steps": (
        "a task's steps follow from its items and optim.epochs=10; optim.min_steps=30 sets a least "
        "number, and optim.max_steps=400 limits what optim.acquired=1 adds"
    ),
    "per_device_train_batch_size train_batch_size micro_batch_size per_device_batch_size "
    "per_gpu_train_batch_size train_mb_size minibatch_size": (
        "write optim.batch_size=8, sequences in a minibatch"
    ),
    "gradient_accumulation_steps gradient_accumulation grad_accumulation_steps": (
        "write optim.accumulation=2, minibatches in a step"
    ),
    "max_grad_norm gradient_clipping grad_clip clip_grad_norm gradient_clip_val": (
        "write optim.clip=1"
    ),
    "warmup_ratio": "write optim.warmup=0.1, a share of each task's steps",
    "warmup_steps num_warmup_steps warmup_epochs": (
        "the warm-up is a share of each task's steps, not a count; write optim.warmup=0.05"
    ),
    "lr_scheduler_type lr_scheduler lr_scheduler_kwargs scheduler min_lr": (
        "the schedule is fixed: each task has a linear warm-up, then a constant rate; "
        "optim.warmup=0.05 and optim.lr=5e-4 set both"
    ),
    "optim optimizer optimiser optim_args use_8bit_adam optimizer_type": (
        "the optimiser is always torch's AdamW in float32, as its state has the size of the "
        "low-rank factors only; its settings are optim.lr=5e-4 and optim.weight_decay=0.01"
    ),
    "adam_beta1 adam_beta2 adam_epsilon betas eps": (
        "AdamW has torch's defaults for betas and epsilon, which cannot be changed; what can be "
        "are optim.lr=5e-4 and optim.weight_decay=0.01"
    ),
    "label_smoothing label_smoothing_factor": (
        "label smoothing is not there, since recall takes the most likely answer; leave it out"
    ),
    "neftune_noise_alpha": (
        "noise on embeddings is not there; to regularise, raise lora.dropout=0.1"
    ),
    "early_stopping_patience early_stopping_threshold early_stopping": (
        "write optim.acquired=1, which ends a task when its answers are learned, between "
        "optim.epochs=1 and optim.max_steps=400"
    ),
    # Low-rank adapters.
    "r lora_r lora_rank lora_dim": "write lora.rank=32",
    "lora_alpha": "write lora.alpha=64; the branch is scaled by alpha / rank",
    "lora_dropout": "write lora.dropout=0.05",
    "target_modules lora_target_modules lora_target lora_target_linear": (
        "write lora.targets=all-linear, or a list: lora.targets=[q_proj,v_proj]"
    ),
    "use_rslora": (
        "the branch is scaled by alpha / rank; for the scale of rsLoRA multiply lora.alpha=64 by "
        "the square root of lora.rank=32"
    ),
    "use_dora init_lora_weights loftq_config pissa_init loraplus_lr_ratio": (
        "the branch is plain LoRA, and the method chooses how its factors begin; "
        "method=osrm and method=olora are the choices beside method=merge and method=vanilla"
    ),
    "modules_to_save layers_to_transform layers_pattern rank_pattern alpha_pattern lora_bias "
    "use_peft peft_config task_type": (
        "only low-rank factors are trained, of one rank in every layer; lora.targets=all-linear "
        "says on which maps"
    ),
    # Precision, memory and speed.
    "bf16 bfloat16 bf16_full_eval": "write backbone.precision=bfloat16",
    "fp16 float16 half fp16_full_eval": (
        "float16 is not there, as it needs loss scaling; write backbone.precision=bfloat16, or "
        "backbone.precision=float32"
    ),
    "torch_dtype dtype mixed_precision compute_dtype": (
        "write backbone.precision=bfloat16, or auto, float32, float64"
    ),
    "tf32": "tf32 is not switched on; for speed write backbone.precision=bfloat16",
    "load_in_4bit load_in_8bit quantization_config quantization quantization_bit use_qlora "
    "bnb_4bit_quant_type bnb_4bit_compute_dtype bnb_4bit_use_double_quant": (
        "write backbone.quantization=nf4 for 4 bits or int8 for 8; products are taken in "
        "backbone.precision=bfloat16, and rules that merge keep a float32 master in host memory"
    ),
    "gradient_checkpointing gradient_checkpointing_kwargs use_gradient_checkpointing "
    "activation_checkpointing use_reentrant": (
        "write backbone.checkpointing=true, which changes no number and takes up to half more "
        "time; what else saves memory: optim.batch_size=4 with optim.accumulation=2"
    ),
    "attn_implementation use_flash_attention_2 flash_attention flash_attn use_flash_attn "
    "xformers_attention sdp_attention": (
        "attention is chosen by itself: PyTorch's scaled_dot_product_attention, which has flash "
        "kernels; to choose, write backbone.attention=sdpa, or eager, flash_attention_2"
    ),
    "torch_compile torch_compile_backend torch_compile_mode use_liger_kernel use_liger jit": (
        "write backbone.compile=true, which compiles the element-wise parts of training"
    ),
    "offload_optimizer offload_param offload_states cpu_offload offload_folder "
    "offload_state_dict optimizer_offload": (
        "write backbone.offload=true, which rests in host memory what only moments of a step or a "
        "boundary need; the frozen weights stay on the GPU, where backbone.quantization=nf4 "
        "makes them small"
    ),
    "device_map no_cuda use_cpu device_id local_rank": (
        "a run has one device; write backbone.device=cpu, or cuda, cuda:1, auto"
    ),
    "deepspeed fsdp fsdp_config fsdp_version ddp_backend ddp_find_unused_parameters n_gpu "
    "num_processes tensor_parallel_size tp_size": (
        "the processes that torchrun --nproc-per-node N -m holdfast run starts share a run, each "
        "with the whole model on a device of its own; holdfast suite --workers N learns several "
        "runs side by side"
    ),
    "full_determinism use_deterministic_algorithms cudnn_deterministic": (
        "write backbone.deterministic=true"
    ),
    "data_seed random_seed manual_seed random_state seed_everything": (
        "write seed=42, for the order, the factors and the samples; a generated stream has "
        "stream.seed=42"
    ),
    # The model.
    "model model_name model_name_or_path model_id base_model pretrained_model_name_or_path "
    "model_path": "write backbone.name=DIR, a directory or a name of the Hugging Face hub",
    "tokenizer tokenizer_name tokenizer_name_or_path tokenizer_type use_fast "
    "use_fast_tokenizer": (
        "the tokenizer is the one beside the weights; put both in a directory and write "
        "backbone.name=DIR"
    ),
    "revision model_revision": "write backbone.revision=main, or a tag or a commit of the hub",
    "trust_remote_code": (
        "never: no code from a model's repository is run; choose by backbone.name=DIR a model "
        "whose architecture transformers has"
    ),
    "cache_dir": "set the environment variable HF_HOME to the cache's folder",
    "token hub_token use_auth_token hf_token": (
        "log in once with hf auth login, or set the environment variable HF_TOKEN"
    ),
    # The data.
    "dataset dataset_name dataset_path train_file data_path data_files dataset_dir": (
        "write stream.name=facts.jsonl, a file of questions and answers or a stream's directory"
    ),
    "dataset_text_field text_column prompt_template chat_template apply_chat_template "
    "formatting_func": (
        "each item is learned as Question: ... Answer: \\boxed{...}; name the columns question and "
        "answer and write stream.name=facts.jsonl"
    ),
    "max_samples max_train_samples num_tasks n_tasks n_experiences": (
        "write stream.tasks=10, and for generated streams stream.items_per_task=32"
    ),
    "max_seq_length max_seq_len model_max_length cutoff_len sequence_len block_size": (
        "write template.max_length=384, in tokens"
    ),
    "truncation truncation_side": (
        "items that are too long are refused; write template.overlong=truncate, or drop"
    ),
    "packing sample_packing neat_packing eval_packing": (
        "packing is not there: each item is a sequence of its own, so that none sees another; "
        "leave it out"
    ),
    "padding padding_side pad_to_multiple_of pad_to_max_length group_by_length "
    "length_column_name": "padding is arranged by itself and changes no result; leave it out",
    "add_eos_token append_eos_token": "write template.append_eos=true",
    "completion_only_loss assistant_only_loss train_on_inputs train_on_prompt mask_prompt": (
        "the loss counts questions and answers, as in the paper; for methods without replay, "
        "balance.questions=0.1 weighs the questions less from the second task on"
    ),
    "dataloader_num_workers num_workers num_proc dataloader_pin_memory "
    "dataloader_prefetch_factor preprocessing_num_workers dataset_num_proc": (
        "a task's tokens are in memory, so no loading process is needed; leave it out"
    ),
    "shuffle": "items are shuffled in every epoch, in an order that seed=42 decides; leave it out",
    # Files, logs and evaluation.
    "report_to wandb wandb_project wandb_run_name use_wandb run_name logging_dir "
    "tracker_project_name": (
        "no tracker is called: losses and seconds are in log.jsonl of the run's directory, and "
        "holdfast report DIR makes a page of it"
    ),
    "logging_steps logging_strategy logging_first_step log_level log_interval": (
        "log.jsonl in the run's directory has one line for each task; leave it out"
    ),
    "save_steps save_strategy save_total_limit save_every checkpointing_steps save_only_model "
    "save_safetensors": (
        "every task's end is saved; to keep what is needed to go back to each, write "
        "keep.factors=true"
    ),
    "resume_from_checkpoint auto_resume resume": (
        "the same command with the same --out continues where it was stopped; leave it out"
    ),
    "load_best_model_at_end metric_for_best_model greater_is_better": (
        "the last task's model is the result; an earlier one is exported with holdfast export "
        "--after-task N, which needs keep.factors=true"
    ),
    "output_dir out out_dir overwrite_output_dir save_dir": (
        "give the directory as an option, --out DIR"
    ),
    "push_to_hub hub_model_id hub_strategy hub_private_repo": (
        "nothing is uploaded; write the model with holdfast export RUN DIR --to hf, then use "
        "hf upload"
    ),
    "eval_steps eval_strategy evaluation_strategy do_eval eval_every eval_on_start": (
        "recall is measured after every task; write evaluation.rows=10 for every tenth, or "
        "evaluation.rows=horizon"
    ),
    "per_device_eval_batch_size eval_batch_size eval_mb_size eval_accumulation_steps": (
        "write evaluation.tokens_per_batch=8192, tokens in a pass; it changes no result"
    ),
    "num_beams do_sample generation_num_beams predict_with_generate": (
        "answers are decoded greedily, at most evaluation.max_new_tokens=256 tokens; leave it out"
    ),
    "compute_metrics metrics": (
        "metrics.json has the paper's metrics; how answers are compared is evaluation.match=exact"
    ),
    "disable_tqdm": "progress is shown on terminals only; leave it out",
    # Continual learning.
    "strategy algorithm": (
        "write method=si_replay_merge, the mechanisms' tags joined with _"
    ),
    "ewc_lambda e_lambda": "write online_ewc.strength=1000, with method=online_ewc",
    "ewc_gamma decay_factor": "write online_ewc.decay=1, with method=online_ewc",
    "si_lambda": "write si.strength=1, with method=si",
    "mem_size buffer_size memory_size patterns_per_exp": (
        "no example is stored; to measure against a store, write method=stored and "
        "stored.items=400"
    ),
    "replay_ratio batch_size_mem": (
        "write data.minibatches_per_step=1 and data.weight=0.5, with method=replay"
    ),
}  # fmt: skip

ANSWERS: Mapping[str, str] = {
    name: answer for names, answer in _ANSWERS.items() for name in names.split()
}
