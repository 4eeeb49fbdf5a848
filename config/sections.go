package config

import (
	"fmt"
	"time"

	"github.com/snug-ml/snug/internal/isa"
)

// Training configures how the model is trained. The unit of progress is the update: one optimizer step over
// batch_size x gradient_accumulation_steps sequences on every device.
type Training struct {
	BatchSize                 int     `key:"batch_size" min:"1" of:"rows" help:"sequences per micro-batch and device"`
	GradientAccumulationSteps int     `key:"gradient_accumulation_steps" min:"1" of:"micro-steps" help:"micro-batches per update"`
	MaxSteps                  int     `key:"max_steps" min:"1" of:"updates" help:"updates in all"`
	LearningRate              float64 `key:"learning_rate" above:"0" help:"the highest learning rate of the schedule"`
	LearningRateWidth         int     `key:"learning_rate_width" min:"0" of:"width" help:"model width that learning_rate is meant for: a model of another width trains at learning_rate*learning_rate_width/width, because an Adam update changes a layer's output in proportion to its width; 0: learning_rate as it is"`
	MinLRRatio                float64 `key:"min_lr_ratio" min:"0" max:"1" help:"final rate of linear and cosine, as a share of learning_rate"`
	LRScheduler               string  `key:"lr_scheduler" enum:"constant,linear,cosine,noam,plateau" help:"shape of the schedule after warm-up"`
	WarmupSteps               int     `key:"warmup_steps" min:"0" of:"updates" help:"updates over which the learning rate rises from 0"`
	Plateau                   Plateau `key:"plateau" help:"the plateau schedule"`
	Optimizer                 string  `key:"optimizer" enum:"adamw,adamw8bit,lion,adafactor,muon" help:"adamw8bit: AdamW with moments in 8 bits; lion: one moment, wants a learning rate about a fifth of AdamW's; adafactor: almost no memory; muon: orthogonal steps for matrices, AdamW for the rest"`
	MasterWeights             string  `key:"master_weights" enum:"fp32,stochastic,compensated" help:"how matrices are kept: fp32, or in 16 bits alone, rounded at random or with a remainder of 16 bits"`
	GradientDtype             string  `key:"gradient_dtype" enum:"fp32,bf16" help:"how gradients of matrices are kept, as sums over micro-batches or until the norm of all is known; bf16: half the bytes, with every sum rounded at random"`
	ActivationCompression     string  `key:"activation_compression" enum:"none,int8" help:"int8: the arguments of GELU and SiLU wait for the backward pass in 8 bits, with a scale a row; gradients are computed from what was rounded, the forward pass is as without"`
	Offload                   string  `key:"offload" enum:"none,optimizer,activations,all,auto" help:"what a card keeps in main memory, with the same results; optimizer: the optimizer's states, which cross the bus in every update; activations: as few as it takes to fit, until the backward pass reads them; all: both; auto: what is needed where gradient_checkpointing: auto does not fit without, or is predicted to be slower"`
	GradientExchange          string  `key:"gradient_exchange" enum:"fp32,bf16" help:"how processes send each other gradients; bf16: half the bytes, with each micro-batch's gradients and their sum rounded to bfloat16"`
	GradientSums              string  `key:"gradient_sums" enum:"ordered,fast,tree" help:"how processes add up gradients; ordered: in the order of the micro-batches, with the same bits for any number of processes; fast: each its own micro-batches, then one exchange an update, with bits that depend on the number; tree: neighbors, then neighboring pairs, and so on, in one exchange an update, with the same bits for 1, 2, 4, 8, ... processes"`
	Zero                      int     `key:"zero" min:"0" max:"1" help:"1: processes share the optimizer (ZeRO, stage 1): each keeps the moments of its part of the weights, and updates that; 0: each has all. The results are the same"`
	DiLoCo                    DiLoCo  `key:"diloco" help:"processes that train on their own between synchronizations"`
	WeightDecay               float64 `key:"weight_decay" min:"0" help:"decoupled weight decay of matrices; biases and norms have none"`
	Beta1                     float64 `key:"beta1" min:"0" below:"1" help:"decay of the first moment; of lion's step; not used by adafactor"`
	Beta2                     float64 `key:"beta2" min:"0" below:"1" help:"decay of the second moment; of lion's moment; not used by adafactor"`
	Eps                       float64 `key:"eps" above:"0" help:"AdamW's epsilon, which prevents division by zero"`
	MaxGradNorm               float64 `key:"max_grad_norm" min:"0" help:"clip gradients to this global norm; 0: never"`
	ClipNorm                  string  `key:"clip_norm" enum:"exact,two_passes,previous" help:"by which norm max_grad_norm clips where an update has one micro-batch; exact: that of all gradients, which are kept until it is known; two_passes: the same, found in a backward pass of its own, so that none is kept; previous: that of the update before (not with fp16)"`

	MixedPrecision        string    `key:"mixed_precision" enum:"auto,fp32,tf32,bf16,fp16" help:"format of matmuls; auto: the best that the device supports"`
	LossScale             LossScale `key:"loss_scale" help:"dynamic loss scaling, used with fp16"`
	GradientCheckpointing string    `key:"gradient_checkpointing" enum:"none,activation,selective,wide,full,slices,auto" help:"what the backward pass recomputes to save memory; slices: full, in parts of the micro-batch; auto: the fastest that fits"`
	CheckpointSlices      int       `key:"checkpoint_slices" min:"0" of:"parts" help:"in how many parts gradient_checkpointing: slices computes a block; a divisor of batch_size; 0: as few as fit; more makes auto slices"`
	CEChunk               int       `key:"ce_chunk" min:"0" of:"tokens" help:"rows of logits in memory at a time; 0: the planner decides"`

	LogSteps              int     `key:"log_steps" min:"1" of:"updates" help:"updates between log lines"`
	EvalSteps             int     `key:"eval_steps" min:"0" of:"updates" help:"updates between evaluations; 0: only at the end"`
	EvalBatchSize         int     `key:"eval_batch_size" min:"0" of:"rows" help:"rows of a micro-batch in evaluations; 0: training.batch_size"`
	EvalBatches           int     `key:"eval_batches" min:"0" of:"batches" help:"micro-batches per evaluation; 0: all held-out data"`
	SaveSteps             int     `key:"save_steps" min:"0" of:"updates" help:"updates between checkpoints; 0: only at the end (see checkpoint.keep_best)"`
	EarlyStoppingPatience int     `key:"early_stopping_patience" min:"0" of:"updates" help:"evaluations without improvement before stopping; 0: never stop early"`
	EarlyStoppingMinDelta float64 `key:"early_stopping_min_delta" min:"0" help:"how much better the metric must be to count as an improvement"`
	Seed                  uint64  `key:"seed" of:"seed" help:"seed of weights, dropout and data order"`
	Sample                Sample  `key:"sample" help:"text that the best checkpoint generates at the end of the run"`
}

// DiLoCo configures processes that train on their own, and synchronize their weights now and then (Douillard et
// al. 2023, arXiv 2311.08105).
type DiLoCo struct {
	InnerSteps        int     `key:"inner_steps" min:"0" of:"updates" help:"updates that each process applies to its own weights before the changes of all are averaged; 0: gradients are exchanged in every update"`
	OuterLearningRate float64 `key:"outer_learning_rate" above:"0" help:"share of the averaged change that is applied to the weights that all continue from"`
	OuterMomentum     float64 `key:"outer_momentum" min:"0" below:"1" help:"Nesterov momentum of the averaged changes; 0: none"`
	Exchange          string  `key:"exchange" enum:"fp32,int8" help:"how processes send each other changes; int8: about a quarter of the bytes, in blocks of 256 with a scale, rounded to 1/254 of the largest in a block"`
}

// Between returns why something that is done every so many updates, or after that many, is not done where all
// processes have the same weights; empty if it is.
func (d *DiLoCo) Between(updates int64) string {
	inner := int64(d.InnerSteps)
	if inner == 0 || updates%inner == 0 {
		return ""
	}
	at := updates / inner * inner
	near := fmt.Sprint(at + inner)
	if at > 0 {
		near = fmt.Sprintf("%d or %d", at, at+inner)
	}
	return fmt.Sprintf("processes have the same weights every %d updates (training.diloco.inner_steps): want %s", inner, near)
}

// Plateau configures the schedule that lowers the learning rate when the held-out metric stops improving.
type Plateau struct {
	Factor   float64 `key:"factor" above:"0" below:"1" help:"factor that the learning rate is multiplied by"`
	Patience int     `key:"patience" min:"0" of:"updates" help:"evaluations without improvement before the rate is lowered"`
}

// LossScale configures dynamic loss scaling (Micikevicius et al. 2018, arXiv 1710.03740).
type LossScale struct {
	Init           float64 `key:"init" above:"0" help:"scale of the first update"`
	GrowthFactor   float64 `key:"growth_factor" above:"1" help:"applied after growth_interval updates without overflow"`
	BackoffFactor  float64 `key:"backoff_factor" above:"0" below:"1" help:"applied after an overflow, whose update is skipped"`
	GrowthInterval int     `key:"growth_interval" min:"1" of:"updates" help:"updates without overflow before the scale grows"`
}

// Sample configures the text that the model generates at the end of a run.
type Sample struct {
	Prompt      string  `key:"prompt" help:"text to continue; empty: from the start of a document"`
	Tokens      int     `key:"tokens" min:"0" of:"tokens" help:"length; 0: no sample"`
	Temperature float64 `key:"temperature" min:"0" help:"sampling temperature; 0: always the most likely token"`
	TopK        int     `key:"top_k" min:"0" of:"vocabulary" help:"sample from this many most likely tokens; 0: from all"`
	TopP        float64 `key:"top_p" above:"0" max:"1" help:"sample from the most likely tokens whose probabilities add up to this"`
}

// Data configures what the model learns from.
type Data struct {
	Source          []string  `key:"source" help:"files, folders, glob patterns and hf://datasets/OWNER/NAME[@REVISION][/PATH]"`
	Format          string    `key:"format" enum:"auto,text,jsonl,json,csv,tsv,parquet,npz,gotree" help:"auto: by file name; gotree: the source tree of the Go installation"`
	TextField       string    `key:"text_field" help:"field or column that holds the text, in all formats with fields; a dot selects a nested field"`
	ArrayKey        string    `key:"array_key" help:"key of the list of records in a JSON file that is an object"`
	Documents       string    `key:"documents" enum:"file,paragraph,line,chunk" help:"what counts as a document in a text file; chunk: 16 KiB up to the next line end"`
	Overlap         int       `key:"overlap" min:"0" of:"positions" help:"tokens that a row of an NPZ file repeats from the previous row"`
	MaxRecord       Bytes     `key:"max_record" help:"largest document or record; 0: 64 MiB"`
	ReplaceInvalid  bool      `key:"replace_invalid" help:"replace invalid UTF-8 with U+FFFD; false: it is an error"`
	Tokenizer       Tokenizer `key:"tokenizer" help:"how text becomes tokens"`
	SeqLen          int       `key:"seq_len" min:"0" of:"positions" help:"tokens of a training sequence; 0: model.max_seq_len"`
	Validation      []string  `key:"validation" help:"held-out files, named as in data.source; empty: held_out_fraction of the source"`
	HeldOutFraction float64   `key:"held_out_fraction" min:"0" below:"1" help:"share of the source held out for evaluation, if no data.validation is named"`
	SplitBy         string    `key:"split_by" enum:"document,folder,end" help:"what stays together on one side of the split; end: the last held_out_fraction of each document is held out"`
	SegmentMask     bool      `key:"segment_mask" help:"attention does not cross documents packed into one sequence"`
	Shuffle         bool      `key:"shuffle" help:"random order of sequences, different in each epoch"`
	ShuffleSeed     uint64    `key:"shuffle_seed" of:"seed" help:"seed of that order; 0: training.seed"`
	CacheDir        string    `key:"cache_dir" help:"folder for prepared data; empty: inside the run directory"`
	Workers         int       `key:"workers" min:"1" of:"threads" help:"goroutines that prepare batches"`
	Prefetch        int       `key:"prefetch" min:"1" max:"64" of:"updates" help:"updates whose data is prepared ahead"`
}

// HoldsOut reports whether there is data to evaluate on.
func (d *Data) HoldsOut() bool { return d.HeldOutFraction > 0 || len(d.Validation) > 0 }

// SplitShare returns the share of documents held out at random. It is 0 if files are named, or if the end of
// each document is held out.
func (d *Data) SplitShare() float64 {
	if d.SplitBy == "end" {
		return 0
	}
	return d.HeldOutFraction
}

// Tokenizer names a trained tokenizer, or says how to train one.
type Tokenizer struct {
	Path      string `key:"path" help:"tokenizer.json to use, or hf://OWNER/NAME; empty: train a byte-level BPE on the data"`
	VocabSize int    `key:"vocab_size" min:"258" of:"vocabulary" help:"size of a tokenizer trained here, including bytes and special tokens"`
}

// Hardware configures what the run may use.
type Hardware struct {
	Device       string      `key:"device" help:"auto, cpu, cuda, cuda:N, or reference: the float64 definition of every operation, for checks, hundreds of times slower"`
	Threads      int         `key:"threads" min:"0" of:"threads" help:"worker threads on the CPU; 0: the cores this process may use"`
	MemoryBudget Bytes       `key:"memory_budget" help:"most memory that the run may use; 0: what the device has"`
	HostMemory   Bytes       `key:"host_memory" help:"most main memory that a run on a card may use where training.offload needs it; 0: what there is, and 12 GiB in plans for cards of other machines"`
	CPUISA       isa.Setting `key:"cpu_isa" help:"kernels to use on the CPU; neon-bfdot: neon without the instruction BFMMLA, with the same bits"`
	BLAS         string      `key:"blas" help:"fp32 matmuls on the CPU; off: by snug's kernels, auto: by Accelerate on macOS or an installed OpenBLAS where that is measured to be faster, shape by shape, or the PATH of such a library"`
	Cublas       string      `key:"cublas" enum:"auto,off" help:"matmuls on NVIDIA cards; auto: by NVIDIA's cuBLASLt where it is installed and measured to be faster than snug's kernels, shape by shape"`
	Exchange     string      `key:"exchange" help:"what processes exchange gradients over; tcp: snug's own connections; mpi: the MPI library of the mpirun, mpiexec or srun that started them, or mpi:PATH of one; nccl: NVIDIA's NCCL from card to card, or nccl:PATH of one; auto: nccl where every process has a card of its own and NCCL is found, otherwise tcp. The results are the same"`
}

// Checkpoint configures how the state is saved.
type Checkpoint struct {
	KeepLast    int           `key:"keep_last" min:"1" of:"checkpoints" help:"number of newest checkpoints to keep"`
	KeepBest    bool          `key:"keep_best" help:"save every evaluation that is the best so far, and keep the best checkpoint"`
	Compression string        `key:"compression" enum:"none,zstd" help:"lossless compression of uploads to remote; local checkpoints are mapped into memory and never compressed"`
	Remote      string        `key:"remote" help:"where finished checkpoints are copied, such as s3://BUCKET/PREFIX; empty: nowhere"`
	Grace       time.Duration `key:"grace" min:"0" of:"duration" help:"time for the save after SIGTERM"`
}

// Metrics configures the other programs that receive the figures of a run.
type Metrics struct {
	TensorBoard bool   `key:"tensorboard" help:"write event files for TensorBoard to the folder tensorboard of the run directory"`
	MLflow      string `key:"mlflow" help:"URL of an MLflow tracking server that gets the run, such as http://localhost:5000; env: that of MLFLOW_TRACKING_URI; empty: none"`
}

// Run configures where a run's files go.
type Run struct {
	Out string `key:"out" help:"run directory; empty: a new one in runs/"`
}

// DefaultPrefetch is the default of data.prefetch.
const DefaultPrefetch = 2

// defaults returns the values of the common sections before any preset.
func defaults() Config {
	return Config{
		Training: Training{
			BatchSize: 8, GradientAccumulationSteps: 1, MaxSteps: 1000,
			LearningRate: 3e-4, MinLRRatio: 0.1, LRScheduler: "cosine", WarmupSteps: 0,
			Plateau:   Plateau{Factor: 0.5, Patience: 3},
			Optimizer: "adamw", MasterWeights: "fp32", GradientDtype: "fp32", ActivationCompression: "none", Offload: "none", GradientExchange: "fp32", GradientSums: "ordered", DiLoCo: DiLoCo{OuterLearningRate: 0.7, OuterMomentum: 0.9, Exchange: "fp32"}, WeightDecay: 0.1, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, MaxGradNorm: 1, ClipNorm: "exact",
			MixedPrecision:        "auto",
			LossScale:             LossScale{Init: 65536, GrowthFactor: 2, BackoffFactor: 0.5, GrowthInterval: 2000},
			GradientCheckpointing: "auto",
			LogSteps:              10, EvalSteps: 100, EvalBatches: 0, SaveSteps: 500,
			Seed:   42,
			Sample: Sample{Tokens: 120, Temperature: 0.8, TopK: 50, TopP: 0.95},
		},
		Data: Data{
			Format: "auto", TextField: "text", Documents: "file", Tokenizer: Tokenizer{VocabSize: 8192},
			HeldOutFraction: 0.05, SplitBy: "document", Shuffle: true, Workers: 1, Prefetch: DefaultPrefetch,
		},
		Hardware:   Hardware{Device: "auto", CPUISA: "auto", BLAS: "off", Cublas: "auto", Exchange: "tcp"},
		Checkpoint: Checkpoint{KeepLast: 3, KeepBest: true, Compression: "none", Grace: 30 * time.Second},
	}
}
