// Package finetune is the system "finetune". It trains existing causal language models (Llama, Qwen3,
// GPT-NeoX, GPT-2) on the answers of conversations, through adapters or as a whole.
package finetune
