package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/internal/regular"
)

// Files of a model folder that have a chat template.
const (
	TemplateFile = "chat_template.jinja"
	configFile   = "tokenizer_config.json"
	// MaxFile bounds a file, in bytes.
	MaxFile = 16 << 20
)

// ChatML is the template of that name, for tokenizers that have none of their own.
const ChatML = `{% for message in messages %}<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// Format renders conversations.
type Format struct {
	Template *Template
	// Source is the text of the template.
	Source string
	// Tokens are the special tokens that a template may use: bos_token, eos_token, ...
	Tokens map[string]any
}

// Load reads the chat template of a model folder, in chat_template.jinja or otherwise in
// tokenizer_config.json. template, unless empty, names another one: a file, or chatml.
func Load(dir, template string) (*Format, error) {
	f := &Format{Tokens: map[string]any{}}
	config, err := f.readConfig(filepath.Join(dir, configFile))
	if err != nil {
		return nil, err
	}
	where := template
	switch template {
	case "chatml":
		f.Source = ChatML
	case "":
		where = filepath.Join(dir, TemplateFile)
		text, err := regular.Read(where, MaxFile)
		switch {
		case err == nil:
			f.Source = string(text)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		default:
			where = filepath.Join(dir, configFile)
			if f.Source, err = fromConfig(config["chat_template"]); err != nil {
				return nil, fmt.Errorf("%s: %w", where, err)
			}
		}
		if f.Source == "" {
			return nil, fmt.Errorf("%s has no chat template, neither in %s nor in %s: name a file with one, or chatml", dir, TemplateFile, configFile)
		}
	default:
		text, err := regular.Read(template, MaxFile)
		if err != nil {
			return nil, err
		}
		f.Source = string(text)
	}
	if f.Template, err = Parse(f.Source); err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	return f, nil
}

// readConfig reads the special tokens, and returns the rest of the file.
func (f *Format) readConfig(path string) (map[string]json.RawMessage, error) {
	text, err := regular.Read(path, MaxFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var config map[string]json.RawMessage
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, name := range []string{"bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token"} {
		var plain string
		var added struct {
			Content string `json:"content"`
		}
		switch {
		case config[name] == nil || string(config[name]) == "null":
		case json.Unmarshal(config[name], &plain) == nil:
			f.Tokens[name] = plain
		case json.Unmarshal(config[name], &added) == nil:
			f.Tokens[name] = added.Content
		default:
			return nil, fmt.Errorf("%s: %s is %s, want a token", path, name, config[name])
		}
	}
	return config, nil
}

// fromConfig returns a template or, if there are several, the one called default.
func fromConfig(raw json.RawMessage) (string, error) {
	var one string
	var several []struct{ Name, Template string }
	switch {
	case raw == nil || string(raw) == "null":
		return "", nil
	case json.Unmarshal(raw, &one) == nil:
		return one, nil
	case json.Unmarshal(raw, &several) == nil:
		for _, t := range several {
			if t.Name == "default" {
				return t.Template, nil
			}
		}
		return "", errors.New("none of several templates in chat_template is called default")
	}
	return "", errors.New("chat_template is neither a text nor a list of named ones")
}

// Message is a turn of a conversation.
type Message struct {
	Role, Content string
	// Thoughts are what a model thinks before it answers, Name is the speaker; "" means
	// none.
	Thoughts, Name string
	// Untrained marks an answer that is not to be learned.
	Untrained bool
}

// Assistant is the role of answers.
const Assistant = "assistant"

var roles = []string{"system", "developer", "user", Assistant}

// Read reads a conversation in the format of OpenAI's chat messages: a list of objects
// with role and content.
func Read(v any) ([]Message, error) {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return nil, errors.New("want a list of messages")
	}
	var out []Message
	for i, v := range list {
		m, err := readMessage(v)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		out = append(out, m)
	}
	return out, nil
}

func readMessage(v any) (m Message, err error) {
	fields, ok := v.(map[string]any)
	if !ok {
		return m, errors.New("want an object with role and content")
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		value := fields[key]
		text, isText := value.(string)
		switch key {
		case "role":
			m.Role = text
		case "content":
			if m.Content, err = content(value); err != nil {
				return m, err
			}
		case "name":
			m.Name = text
		case "reasoning_content":
			m.Thoughts = text
		case "weight":
			n, ok := value.(json.Number)
			if !ok || n != "0" && n != "1" {
				return m, fmt.Errorf("weight is %v, want 0 or 1", value)
			}
			m.Untrained = n == "0"
		default:
			if value != nil {
				return m, fmt.Errorf("%s is not supported: want role, content, name, reasoning_content and weight", key)
			}
		}
		if isText || value == nil || key == "content" || key == "weight" {
			continue
		}
		return m, fmt.Errorf("%s is no text", key)
	}
	if !slices.Contains(roles, m.Role) {
		return m, fmt.Errorf("role is %q, want %s", m.Role, strings.Join(roles, ", "))
	}
	if _, ok := fields["content"]; !ok {
		return m, errors.New("content is missing")
	}
	return m, nil
}

// content reads a text, or one in parts.
func content(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case []any:
		var b strings.Builder
		for i, p := range v {
			part, ok := p.(map[string]any)
			text, isText := part["text"].(string)
			if !ok || part["type"] != "text" || !isText {
				return "", fmt.Errorf("content: part %d is no text, and others are not supported", i)
			}
			b.WriteString(text)
		}
		return b.String(), nil
	}
	return "", errors.New("content is no text")
}

// Render renders a conversation as text; prompt: with the beginning of an answer.
func (f *Format) Render(messages []Message, prompt bool) (string, error) {
	list := make([]any, len(messages))
	for i, m := range messages {
		fields := newDict()
		fields.set("role", m.Role)
		fields.set("content", m.Content)
		if m.Thoughts != "" {
			fields.set("reasoning_content", m.Thoughts)
		}
		if m.Name != "" {
			fields.set("name", m.Name)
		}
		list[i] = fields
	}
	vars := map[string]any{"messages": list, "add_generation_prompt": prompt, "tools": nil, "documents": nil}
	maps.Copy(vars, f.Tokens)
	return f.Template.Render(vars)
}

// Answer is the place of an answer in a text: from the end of Before to the end of
// Until, both of which the text begins with.
type Answer struct{ Before, Until string }

// Example is a text whose answers are to be learned.
type Example struct {
	Text    string
	Answers []Answer
}

// Examples renders a conversation to be learned. It is one text, unless the template
// writes an answer differently once others follow it (without its thoughts, say): then
// each answer ends a text of its own, in the form it has when it is given.
func (f *Format) Examples(messages []Message) ([]Example, error) {
	whole, err := f.Render(messages, false)
	if err != nil {
		return nil, err
	}
	one := Example{Text: whole}
	var each []Example
	same := true
	for i, m := range messages {
		if m.Role != Assistant || m.Untrained {
			continue
		}
		var a Answer
		if a.Before, err = f.Render(messages[:i], true); err != nil {
			return nil, err
		}
		if a.Until, err = f.Render(messages[:i+1], false); err != nil {
			return nil, err
		}
		if !strings.HasPrefix(a.Until, a.Before) {
			return nil, fmt.Errorf("message %d: the template does not write an answer after what it writes to prompt for one, so the answer cannot be found", i)
		}
		same = same && strings.HasPrefix(whole, a.Until)
		one.Answers = append(one.Answers, a)
		each = append(each, Example{a.Until, []Answer{a}})
	}
	if same && len(each) > 0 {
		return []Example{one}, nil
	}
	return each, nil
}
