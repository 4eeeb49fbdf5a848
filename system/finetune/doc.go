// Package finetune is the system "finetune": causal language models that others trained
// (Llama, Qwen3, GPT-NeoX, GPT-2) learn the answers of conversations, by adapters or as a
// whole.
package finetune
