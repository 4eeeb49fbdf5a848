// Package hf builds the model architectures whose weights people keep in
// Hugging Face model folders (config.json, safetensors, tokenizer). Weights
// are named and laid out as there, so folders load and what snug trains can be
// loaded by others.
package hf
