package config

import "strings"

// alias answers another guide's spelling.
type alias struct {
	key  string // ours; "" if there is none, and why says why
	why  string
	from []string // theirs: a last component, or a dotted path where the section decides
}

func (a *alias) answer() string {
	switch {
	case a.key == "":
		return "no such key here: " + a.why
	case a.why == "":
		return "written " + a.key + " here"
	}
	return "written " + a.key + " here: " + a.why
}

// aliases are the spellings found in the guides of the five systems and in the usual Python trainers.
var aliases = []alias{
	// training: the update
	{"training.batch_size", "sequences per device and micro-batch", []string{
		"per_device_train_batch_size", "train_batch_size", "batch_train", "micro_batch_size", "batchsize", "per_gpu_batch_size", "device_batch_size"}},
	{"", "evaluation uses training.batch_size", []string{"per_device_eval_batch_size", "eval_batch_size", "batch_eval", "val_batch_size"}},
	{"training.gradient_accumulation_steps", "micro-batches per update", []string{
		"grad_accum", "gradient_accumulation", "accumulation_steps", "grad_accumulation_steps", "accumulate_grad_batches", "accum_steps"}},
	{"training.max_steps", "runs are counted in updates, not epochs", []string{
		"epochs", "num_epochs", "num_train_epochs", "max_epochs", "phase1_epochs", "loo_epochs"}},
	{"training.max_steps", "updates", []string{"max_iters", "num_steps", "train_steps", "total_steps", "max_train_steps"}},
	{"training.learning_rate", "", []string{"lr", "base_lr", "max_lr", "peak_lr"}},
	{"training.min_lr_ratio", "a share of learning_rate", []string{"min_lr", "lr_min", "eta_min"}},
	{"training.lr_scheduler", "constant, linear, cosine, noam or plateau", []string{"scheduler", "lr_scheduler_type", "lr_schedule", "scheduler_type"}},
	{"training.warmup_steps", "counted in updates", []string{"warmup_ratio", "warmup_iters", "warmup_epochs", "num_warmup_steps", "warmup"}},
	{"training.weight_decay", "", []string{"wd"}},
	{"training.beta1", "", []string{"adam_beta1"}},
	{"training.beta2", "", []string{"adam_beta2"}},
	{"training.beta1", "and training.beta2, one number each", []string{"betas"}},
	{"training.eps", "", []string{"adam_epsilon", "adam_eps", "epsilon"}},
	{"training.max_grad_norm", "the global norm to clip to; 0 never clips", []string{
		"gradient_clip", "grad_clip", "grad_clip_value", "gradient_clip_val", "clip_grad_norm", "clip_grad", "max_norm"}},
	{"", "the optimizer is AdamW, always fused; its settings are training.weight_decay, beta1, beta2 and eps", []string{"optimizer", "optim", "optimizer_type", "fused"}},
	{"training.early_stopping_patience", "counted in evaluations", []string{"patience", "early_stop_patience"}},
	{"training.early_stopping_min_delta", "", []string{"min_delta"}},
	{"training.log_steps", "counted in updates", []string{"logging_steps", "log_interval", "log_every", "logging_interval", "log_freq", "logging_freq"}},
	{"training.eval_steps", "counted in updates", []string{"eval_interval", "eval_every", "evaluation_steps", "val_every", "val_interval", "eval_freq"}},
	{"training.save_steps", "counted in updates", []string{"save_interval", "save_every", "checkpoint_interval", "save_freq", "checkpoint_every"}},
	{"training.seed", "", []string{"random_seed", "manual_seed", "rng_seed"}},

	// training: precision and memory
	{"training.mixed_precision", "auto, fp32, tf32, bf16 or fp16; use_amp: true is fp16, auto takes the device's best", []string{
		"use_amp", "amp", "amp_dtype", "fp16", "bf16", "use_mixed_precision", "precision", "use_fp16", "use_bf16", "half"}},
	{"training.mixed_precision", "tf32, on cards that have it", []string{"allow_tf32", "tf32", "matmul_precision"}},
	{"training.gradient_checkpointing", "none, activation, selective, wide, full or auto", []string{
		"use_gradient_checkpointing", "activation_checkpointing", "checkpoint_activations", "grad_checkpointing", "recompute"}},
	{"", "the training step is always compiled: remove the key", []string{
		"torch_compile", "compile", "compile_model", "use_torch_compile", "torch_compile_mode", "compile_mode", "jit"}},
	{"", "kernels are chosen and measured at start: remove the key", []string{"cudnn_benchmark", "hpc_mode", "cudnn_deterministic", "benchmark"}},
	{"", "attention never keeps the T x T scores: remove the key", []string{
		"use_flash_attention", "flash_attention", "use_attention_slicing", "use_memory_efficient_attention", "attn_implementation"}},
	{"", "all memory is one arena, planned before the first step: remove the key", []string{
		"pytorch_cuda_alloc_conf", "max_split_size_mb", "expandable_segments", "use_cpu_offload", "empty_cache_steps", "torch_empty_cache_steps"}},
	{"hardware.memory_budget", "a size such as 12GiB", []string{"max_memory_mb", "max_memory", "gpu_memory_limit", "memory_limit"}},
	{"", "memory, utilization and non-finite values are always watched: remove the key", []string{
		"profile_memory", "log_gpu_stats", "check_nan", "detect_anomaly", "monitor_gpu"}},

	// model
	{"model.d_model", "", []string{"hidden_size", "n_embd", "embed_dim", "hidden_dim", "dim", "embedding_dim"}},
	{"model.n_layers", "", []string{"num_hidden_layers", "n_layer", "num_layers", "depth", "layers"}},
	{"model.n_heads", "", []string{"num_attention_heads", "n_head", "num_heads", "heads"}},
	{"model.d_ff", "", []string{"intermediate_size", "ffn_dim", "d_inner", "n_inner", "ff_dim", "mlp_dim"}},
	{"model.max_seq_len", "", []string{
		"max_seq_length", "sequence_length", "max_length", "block_size", "context_length", "max_position_embeddings", "n_ctx", "n_positions",
		"training.max_seq_len", "data.max_seq_len", "max_input_length"}},
	{"model.rotary_pct", "", []string{"partial_rotary_factor", "rotary_percent"}},
	{"model.rotary_base", "", []string{"rotary_emb_base", "rope_theta", "rope_base"}},
	{"model.parallel_residual", "", []string{"use_parallel_residual"}},
	{"model.activation", "", []string{"hidden_act", "activation_function", "act"}},
	{"model.dropout", "", []string{"hidden_dropout", "hidden_dropout_prob", "attention_dropout", "resid_pdrop", "attn_pdrop"}},
	{"model.layer_norm_eps", "", []string{"layer_norm_epsilon", "norm_eps", "rms_norm_eps"}},
	{"model.init_std", "", []string{"initializer_range"}},
	{"model.tie_embeddings", "", []string{"tie_word_embeddings", "tied_embeddings", "weight_tying"}},

	// data
	{"data.source", "files, folders and glob patterns", []string{
		"train_path", "data_path", "data_dir", "data_directory", "train_file", "train_files", "dataset", "dataset_path", "files", "tokenized_file_pattern"}},
	{"data.held_out_fraction", "the share held out for evaluation, split from data.source by document", []string{
		"val_path", "val_file", "validation_file", "eval_file", "train_split", "val_split", "validation_split", "train_ratio", "val_ratio", "test_size"}},
	{"data.workers", "", []string{"num_workers", "dataloader_num_workers", "dataloader_workers"}},
	{"", "batches are written into the program's own input buffers: remove the key", []string{
		"pin_memory", "persistent_workers", "prefetch_factor", "drop_last", "use_streaming", "dataloader_pin_memory", "non_blocking"}},
	{"data.cache_dir", "", []string{"preprocess_cache_dir", "dataset_cache_dir", "tokenized_dir"}},
	{"data.tokenizer.path", "", []string{"tokenizer_path", "tokenizer_name", "tokenizer_file", "vocab_file", "data.tokenizer"}},
	{"data.text_field", "", []string{"text_column", "text_key", "text_col", "content_field"}},

	// hardware
	{"hardware.device", "cuda or cuda:N is one GPU", []string{"num_gpus", "gpus", "n_gpu", "accelerator", "gpu", "use_gpu", "use_cuda", "no_cuda", "use_cpu"}},
	{"hardware.threads", "", []string{"num_threads", "n_threads", "omp_num_threads", "cpu_threads"}},
	{"", "one process trains on one device", []string{"distributed", "ddp", "world_size", "local_rank"}},

	// checkpoints, run
	{"checkpoint.keep_last", "", []string{"keep_last_n_checkpoints", "save_total_limit", "keep_checkpoints", "max_checkpoints", "keep_last_n"}},
	{"checkpoint.keep_best", "", []string{"load_best_model_at_end", "save_best", "save_best_only"}},
	{"checkpoint.compression", "none or zstd", []string{"checkpoint_compression", "compress_checkpoints"}},
	{"checkpoint.remote", "s3://BUCKET/PREFIX; copies are made in the background", []string{
		"background_upload", "checkpoint_bucket_path", "bucket_name", "upload_to", "gcs_bucket"}},
	{"run.out", "or --out DIR", []string{
		"output_dir", "output_directory", "checkpoint_dir", "save_dir", "logging_dir", "log_dir", "models_directory", "out_dir", "run_name", "save_name", "experiment_name"}},
	{"", "continue by --resume, with the same --out", []string{"resume", "resume_from_checkpoint", "resume_from"}},
	{"", "metrics are written to metrics.jsonl in the run directory", []string{
		"use_wandb", "wandb_project", "wandb_tags", "wandb_notes", "report_to", "use_tensorboard", "console_level"}},
}

// aliasIndex finds an alias by its folded spelling.
var aliasIndex = func() map[string]*alias {
	index := map[string]*alias{}
	for i := range aliases {
		for _, f := range aliases[i].from {
			if index[f] != nil {
				panic("config: two answers for the spelling " + f)
			}
			index[f] = &aliases[i]
		}
	}
	return index
}()

// findAlias looks for the whole path first, then for its last component; case does not matter.
func findAlias(path string) (*alias, bool) {
	path = strings.ToLower(strings.ReplaceAll(path, "-", "_"))
	if a := aliasIndex[path]; a != nil {
		return a, true
	}
	a := aliasIndex[path[strings.LastIndex(path, ".")+1:]]
	return a, a != nil
}
