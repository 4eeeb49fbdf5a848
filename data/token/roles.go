package token

import "fmt"

// A Role is the purpose of a special token.
type Role string

// The roles that special_tokens_map.json and tokenizer_config.json name, with the suffix
// "_token".
const (
	BOS  Role = "bos"  // beginning of sequence
	EOS  Role = "eos"  // end of sequence
	PAD  Role = "pad"  // padding
	UNK  Role = "unk"  // unknown
	CLS  Role = "cls"  // represents the whole sequence
	SEP  Role = "sep"  // between two sequences
	MASK Role = "mask" // to be predicted
)

var allRoles = [...]Role{BOS, EOS, PAD, UNK, CLS, SEP, MASK}

// usualRoles are the roles of special tokens by their usual spelling, for files without roles.
var usualRoles = map[string][]Role{
	"<|endoftext|>":     {EOS, BOS},
	"<|begin_of_text|>": {BOS},
	"<|end_of_text|>":   {EOS},
	"<s>":               {BOS, CLS},
	"</s>":              {EOS, SEP},
	"<bos>":             {BOS},
	"<eos>":             {EOS},
	"<pad>":             {PAD},
	"<unk>":             {UNK},
	"<mask>":            {MASK},
	"[BOS]":             {BOS},
	"[EOS]":             {EOS},
	"[PAD]":             {PAD},
	"[UNK]":             {UNK},
	"[CLS]":             {CLS},
	"[SEP]":             {SEP},
	"[MASK]":            {MASK},
}

// Special returns the token of a role, and false if the tokenizer has none. The roles are
// those of the files next to tokenizer.json; a tokenizer without such files has the
// roles that its special tokens have by their usual spelling, "</s>" for one.
func (t *Tokenizer) Special(role Role) (int32, bool) {
	id, ok := t.roles[role]
	return id, ok
}

// guessRoles sets the roles by the usual spelling of the special tokens.
func (t *Tokenizer) guessRoles() {
	for id, a := range t.added {
		if !a.special {
			continue
		}
		for _, role := range usualRoles[a.content] {
			if old, ok := t.roles[role]; !ok || id < old {
				t.roles[role] = id
			}
		}
	}
}

// setRole gives a role to the token of that spelling.
func (t *Tokenizer) setRole(role Role, token string) error {
	id, ok := t.ids[token]
	if !ok {
		return fmt.Errorf("%s_token %q is not in the vocabulary", role, token)
	}
	t.roles[role] = id
	return nil
}
