// Package chat renders conversations with the chat templates of model folders.
//
// A template is written in Jinja. The published templates of the Llama, Qwen, GPT-NeoX
// and GPT-2 families need a part of it; [Parse] refuses the rest by name and line. The
// environment is transformers': trim_blocks and lstrip_blocks are on, `tools` and
// `documents` are none, and nothing depends on the time: strftime_now is not defined.
package chat
