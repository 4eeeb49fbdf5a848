// Package hf builds the model architectures whose weights are distributed in Hugging Face model
// folders (config.json, safetensors or pytorch_model.bin, tokenizer): GPT-NeoX, GPT-2, Llama,
// Qwen3, BERT and RoBERTa (of which PhoBERT is one).
//
// It promises:
//
//   - Weights are named and laid out as in the folders, so a folder loads and
//     what snug trains can be loaded by others ([Config.Load], [Export]).
//   - A folder gives the logits that transformers gives for it, within 1e-4 in
//     float32.
//   - A setting of config.json that would change the computation and is not
//     supported is refused by name. What was ignored is listed.
//   - No tensor is missing, left over, converted, tied or resized without being named
//     in the [Report]; what is not allowed is an error that names all of them.
//
// A model is a struct of sizes ([NeoX], [GPT2], [Llama], [BERT]) whose methods add to a
// graph. How it is used there (training, padding, generation on a cache, frozen
// weights, adapters) is its [Input].
package hf
