package config

import (
	"slices"
	"strings"
)

// alias maps a spelling used by another program.
type alias struct {
	key  string // our key; "" if there is none, for the reason in why
	why  string
	from []string // their spellings: a last component, or a dotted path if the section matters
	// take translates their value to ours, or to an empty one if the alias has no key. It returns false if
	// there is no equivalent. If take is nil, the spelling is explained but never translated.
	take   func(theirs string) (ours string, ok bool)
	system string // system that the alias is for; "" for all
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

// same takes a value that means the same here.
func same(theirs string) (string, bool) { return theirs, true }

// always takes a setting that can be left out, because it always holds here.
func always(string) (string, bool) { return "", true }

// oneOf takes the values of a table.
func oneOf(values map[string]string) func(string) (string, bool) {
	return func(theirs string) (string, bool) {
		ours, ok := values[strings.ToLower(theirs)]
		return ours, ok
	}
}

var (
	// takePrecision: true asks for the 16-bit format of the device, if it has one.
	takePrecision = oneOf(map[string]string{
		"true": "auto", "false": "fp32", "no": "fp32", "none": "fp32", "float32": "fp32", "32": "fp32", "fp32": "fp32",
		"fp16": "fp16", "float16": "fp16", "half": "fp16", "16": "fp16", "bf16": "bf16", "bfloat16": "bf16", "tf32": "tf32",
	})
	// takeRecompute: a checkpointed block keeps only its input.
	takeRecompute = oneOf(map[string]string{"true": "full", "false": "none"})
)

// foreignValues translates other programs' values for keys whose name is the same here.
var foreignValues = map[string]func(string) (string, bool){
	"training.mixed_precision":        takePrecision,
	"training.gradient_checkpointing": takeRecompute,
}

// aliases lists the spellings in the guides of the five systems and in common Python trainers.
var aliases = []alias{
	// training: the update
	{"training.batch_size", "sequences per device and micro-batch", []string{
		"per_device_train_batch_size", "train_batch_size", "batch_train", "micro_batch_size", "batchsize", "per_gpu_batch_size", "device_batch_size"}, same, ""},
	{"training.eval_batch_size", "rows of a micro-batch in evaluations", []string{"per_device_eval_batch_size", "batch_eval", "val_batch_size", "test_batch_size"}, same, ""},
	{"training.gradient_accumulation_steps", "micro-batches per update", []string{
		"grad_accum", "gradient_accumulation", "accumulation_steps", "grad_accumulation_steps", "accumulate_grad_batches", "accum_steps"}, same, ""},
	{"training.max_steps", "runs are counted in updates, not epochs: epochs x examples / (batch_size x gradient_accumulation_steps)", []string{
		"epochs", "num_epochs", "num_train_epochs", "max_epochs", "phase1_epochs", "loo_epochs"}, nil, ""},
	{"training.max_steps", "updates", []string{"max_iters", "num_steps", "train_steps", "total_steps", "max_train_steps"}, same, ""},
	{"training.learning_rate", "", []string{"lr", "base_lr", "max_lr", "peak_lr"}, same, ""},
	{"training.min_lr_ratio", "a share of learning_rate", []string{"min_lr", "lr_min", "eta_min"}, nil, ""},
	{"training.lr_scheduler", "", []string{"scheduler", "lr_scheduler_type", "lr_schedule", "scheduler_type"}, nil, ""},
	{"training.warmup_steps", "counted in updates", []string{"warmup_ratio", "warmup_iters", "warmup_epochs", "num_warmup_steps", "warmup"}, nil, ""},
	{"training.weight_decay", "", []string{"wd"}, same, ""},
	{"training.beta1", "", []string{"adam_beta1"}, same, ""},
	{"training.beta2", "", []string{"adam_beta2"}, same, ""},
	{"training.beta1", "and training.beta2, one number each", []string{"betas"}, nil, ""},
	{"training.eps", "", []string{"adam_epsilon", "adam_eps", "epsilon"}, same, ""},
	{"training.max_grad_norm", "the global norm to clip to; 0 never clips", []string{
		"gradient_clip", "grad_clip", "grad_clip_value", "gradient_clip_val", "clip_grad_norm", "clip_grad", "max_norm"}, same, ""},
	{"training.optimizer", "", []string{"optim", "optimizer_type"}, oneOf(map[string]string{
		"adamw": "adamw", "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw",
		"adamw_8bit": "adamw8bit", "adamw8bit": "adamw8bit", "adamw_bnb_8bit": "adamw8bit", "lion": "lion", "lion_32bit": "lion", "adafactor": "adafactor", "muon": "muon"}), ""},
	{"", "optimizers are always fused", []string{"fused"}, always, ""},
	{"training.early_stopping_patience", "counted in evaluations", []string{"patience", "early_stop_patience"}, nil, ""},
	{"training.early_stopping_min_delta", "", []string{"min_delta"}, same, ""},
	{"training.log_steps", "counted in updates", []string{"logging_steps", "log_interval", "log_every", "logging_interval", "log_freq", "logging_freq"}, same, ""},
	{"training.eval_steps", "counted in updates", []string{"eval_interval", "eval_every", "evaluation_steps", "val_every", "val_interval", "eval_freq"}, same, ""},
	{"training.save_steps", "counted in updates", []string{"save_interval", "save_every", "checkpoint_interval", "save_freq", "checkpoint_every"}, same, ""},
	{"training.seed", "", []string{"random_seed", "manual_seed", "rng_seed"}, same, ""},

	// training: precision and memory
	{"training.mixed_precision", "auto is the best format that the device has", []string{
		"use_amp", "amp", "amp_dtype", "use_mixed_precision", "precision"}, takePrecision, ""},
	{"training.mixed_precision", "", []string{"fp16", "use_fp16", "half"}, oneOf(map[string]string{"true": "fp16"}), ""},
	{"training.mixed_precision", "", []string{"bf16", "use_bf16"}, oneOf(map[string]string{"true": "bf16"}), ""},
	{"training.mixed_precision", "tf32 is a precision of its own, of cards from compute capability 8.0 up; fp32 matmuls are computed in fp32", []string{"allow_tf32", "tf32", "matmul_precision"}, nil, ""},
	{"training.gradient_dtype", "", []string{"grad_accum_dtype", "grad_accumulation_dtype"}, oneOf(map[string]string{"fp32": "fp32", "bf16": "bf16"}), ""},
	{"training.gradient_checkpointing", "full keeps the input of each block and nothing else", []string{
		"use_gradient_checkpointing", "activation_checkpointing", "checkpoint_activations", "grad_checkpointing", "recompute"}, takeRecompute, ""},
	{"", "the training step is always compiled", []string{
		"torch_compile", "compile", "compile_model", "use_torch_compile", "torch_compile_mode", "compile_mode", "jit"}, always, ""},
	{"", "kernels are chosen and measured at start", []string{"cudnn_benchmark", "hpc_mode", "cudnn_deterministic", "benchmark"}, always, ""},
	{"", "attention never keeps the T x T scores", []string{
		"use_flash_attention", "flash_attention", "use_attention_slicing", "use_memory_efficient_attention", "attn_implementation"}, always, ""},
	{"", "all memory is one arena, planned before the first step", []string{
		"pytorch_cuda_alloc_conf", "max_split_size_mb", "expandable_segments", "empty_cache_steps", "torch_empty_cache_steps"}, always, ""},
	{"training.offload", "optimizer keeps the optimizer's states of a card in main memory, activations those of the forward pass", []string{"use_cpu_offload", "cpu_offload", "offload_optimizer"}, oneOf(map[string]string{"true": "optimizer", "false": "none", "cpu": "optimizer"}), ""},
	{"hardware.memory_budget", "a size such as 12GiB", []string{"max_memory_mb", "max_memory", "gpu_memory_limit", "memory_limit"}, nil, ""},
	{"", "memory, utilization and non-finite values are always watched", []string{
		"profile_memory", "log_gpu_stats", "check_nan", "detect_anomaly", "monitor_gpu"}, always, ""},

	// model
	{"model.d_model", "", []string{"hidden_size", "n_embd", "embed_dim", "hidden_dim", "dim", "embedding_dim"}, same, ""},
	{"model.n_layers", "", []string{"num_hidden_layers", "n_layer", "num_layers", "depth", "layers"}, same, ""},
	{"model.n_heads", "", []string{"num_attention_heads", "n_head", "num_heads", "heads"}, same, ""},
	{"model.d_ff", "", []string{"intermediate_size", "ffn_dim", "d_inner", "n_inner", "ff_dim", "mlp_dim"}, same, ""},
	{"model.max_seq_len", "", []string{
		"max_seq_length", "sequence_length", "max_length", "block_size", "context_length", "max_position_embeddings", "n_ctx", "n_positions",
		"training.max_seq_len", "data.max_seq_len", "max_input_length"}, same, ""},
	{"data.seq_len", "tokens of a text; model.max_seq_len is the table of positions", []string{
		"max_length", "max_seq_length", "sequence_length", "max_input_length", "training.max_seq_len", "data.max_seq_len", "max_len"}, same, "moderation"},
	{"model.rotary_pct", "", []string{"partial_rotary_factor", "rotary_percent"}, same, ""},
	{"model.rotary_base", "", []string{"rotary_emb_base", "rope_theta", "rope_base"}, same, ""},
	{"model.parallel_residual", "", []string{"use_parallel_residual"}, same, ""},
	{"model.activation", "", []string{"hidden_act", "activation_function", "act"}, nil, ""},
	{"model.dropout", "", []string{"hidden_dropout", "hidden_dropout_prob", "attention_dropout", "resid_pdrop", "attn_pdrop"}, same, ""},
	{"model.layer_norm_eps", "", []string{"layer_norm_epsilon", "norm_eps", "rms_norm_eps"}, same, ""},
	{"model.init_std", "", []string{"initializer_range"}, same, ""},
	{"model.tie_embeddings", "", []string{"tie_word_embeddings", "tied_embeddings", "weight_tying"}, same, ""},

	// data
	{"data.source", "files, folders and glob patterns", []string{
		"train_path", "data_path", "data_dir", "data_directory", "train_file", "train_files", "dataset", "dataset_path", "files", "tokenized_file_pattern"}, nil, ""},
	{"data.validation", "held-out files", []string{"val_path", "val_file", "val_files", "validation_file", "validation_files", "eval_file"}, nil, ""},
	{"data.held_out_fraction", "the share held out for evaluation, split from data.source by document", []string{
		"train_split", "val_split", "validation_split", "train_ratio", "val_ratio", "test_size"}, nil, ""},
	{"data.workers", "", []string{"num_workers", "dataloader_num_workers", "dataloader_workers"}, same, ""},
	{"", "batches are written into the program's own input buffers", []string{
		"pin_memory", "persistent_workers", "drop_last", "use_streaming", "dataloader_pin_memory", "non_blocking"}, always, ""},
	{"data.prefetch", "updates that are prepared ahead, by all workers together", []string{"prefetch_factor", "prefetch_batches", "prefetch_depth"}, same, ""},
	{"data.cache_dir", "", []string{"preprocess_cache_dir", "dataset_cache_dir", "tokenized_dir"}, same, ""},
	{"data.tokenizer.path", "", []string{"tokenizer_path", "tokenizer_name", "tokenizer_file", "vocab_file", "data.tokenizer"}, nil, ""},
	{"data.text_field", "", []string{"text_column", "text_key", "text_col", "content_field"}, same, ""},

	// one system only
	{"tasks.sentiment.examples", "training examples to use", []string{"sst2_size"}, same, "dynamo"},
	{"tasks.qa.examples", "training examples to use", []string{"squad_size"}, same, "dynamo"},
	{"tasks.summarization.examples", "training examples to use", []string{"xsum_size"}, same, "dynamo"},
	{"tasks.code_generation.examples", "training examples to use", []string{"code_gen_size"}, same, "dynamo"},
	{"tasks.translation.examples", "training examples to use", []string{"translation_size"}, same, "dynamo"},
	{"model.frames", "images of a window", []string{"temporal_frames", "num_frames", "sequence_frames"}, same, "cloudbase"},
	{"model.channels", "true is 32, 64 and 128 channels, false 64, 128 and 256", []string{"memory_optimized", "memory_optimised"}, oneOf(map[string]string{"true": "[32, 64, 128]", "false": "[64, 128, 256]"}), "cloudbase"},
	{"model.architecture", "", []string{"architecture.name"}, oneOf(map[string]string{"transformer": "attention", "attention": "attention", "gnn": "gnn", "ssm": "ssm", "cnn": "cnn"}), "cloudbase"},

	// hardware
	{"hardware.device", "cuda or cuda:N is one GPU", []string{"num_gpus", "gpus", "n_gpu", "accelerator", "gpu", "use_gpu", "use_cuda", "no_cuda", "use_cpu"}, nil, ""},
	{"hardware.threads", "", []string{"num_threads", "n_threads", "omp_num_threads", "cpu_threads"}, same, ""},
	{"", "one process trains on one device", []string{"distributed", "ddp", "world_size", "local_rank"}, nil, ""},

	// checkpoints, run
	{"checkpoint.keep_last", "", []string{"keep_last_n_checkpoints", "save_total_limit", "keep_checkpoints", "max_checkpoints", "keep_last_n"}, same, ""},
	{"checkpoint.keep_best", "", []string{"load_best_model_at_end", "save_best", "save_best_only"}, same, ""},
	{"checkpoint.compression", "", []string{"checkpoint_compression", "compress_checkpoints"}, oneOf(map[string]string{"true": "zstd", "zstd": "zstd", "false": "none", "none": "none"}), ""},
	{"checkpoint.remote", "s3://BUCKET/PREFIX; copies are made in the background", []string{
		"background_upload", "checkpoint_bucket_path", "bucket_name", "upload_to", "gcs_bucket"}, nil, ""},
	{"metrics.tensorboard", "", []string{"use_tensorboard"}, same, ""},
	{"metrics.mlflow", "", []string{"mlflow_tracking_uri", "tracking_uri"}, same, ""},
	{"run.out", "--out DIR for short", []string{
		"output_dir", "output_directory", "checkpoint_dir", "save_dir", "logging_dir", "log_dir", "models_directory", "out_dir", "run_name", "save_name", "experiment_name"}, nil, ""},
	{"", "continue by --resume, with the same --out", []string{"resume", "resume_from_checkpoint", "resume_from"}, nil, ""},
	{"", "metrics are written to metrics.jsonl in the run directory", []string{
		"use_wandb", "wandb_project", "wandb_tags", "wandb_notes", "report_to", "console_level"}, nil, ""},
}

// aliasIndex finds aliases by a folded spelling. Those of a single system come first.
var aliasIndex = func() map[string][]*alias {
	index := map[string][]*alias{}
	for i := range aliases {
		a := &aliases[i]
		for _, f := range a.from {
			if slices.ContainsFunc(index[f], func(b *alias) bool { return b.system == a.system }) {
				panic("config: two answers for the spelling " + f)
			}
			if a.system != "" {
				index[f] = append([]*alias{a}, index[f]...)
			} else {
				index[f] = append(index[f], a)
			}
		}
	}
	return index
}()

// findAlias looks for the whole path first, then for its last component, ignoring case. It skips aliases of
// other systems and those whose key c lacks.
func (c *Config) findAlias(path string) (*alias, bool) {
	for _, spelling := range spellings(path) {
		for _, a := range aliasIndex[spelling] {
			if (a.system == "" || a.system == c.System) && (a.key == "" || c.byPath[a.key] != nil) {
				return a, true
			}
		}
	}
	return nil, false
}

func spellings(path string) []string {
	path = strings.ToLower(strings.ReplaceAll(path, "-", "_"))
	return []string{path, path[strings.LastIndex(path, ".")+1:]}
}
