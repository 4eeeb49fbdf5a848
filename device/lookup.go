package device

import (
	"fmt"
	"strings"

	"github.com/snug-ml/snug/internal/suggest"
)

// Cards lists the table, older architectures first.
func Cards() []*Card {
	all := make([]*Card, len(cards))
	for i := range cards {
		all[i] = &cards[i]
	}
	return all
}

// Lookup finds a card by its short name ("t4"), the name the driver gives ("Tesla T4") or
// another usual name; case and separators do not matter. An unknown name is an error that
// lists the nearest name or all names.
func Lookup(name string) (*Card, error) {
	if c := match(name); c != nil {
		return c, nil
	}
	var short, all []string
	for i := range cards {
		short = append(short, cards[i].Name)
		all = append(append(all, cards[i].Name, cards[i].Product), cards[i].Aliases...)
	}
	if n, ok := suggest.Nearest(name, all); ok {
		return nil, fmt.Errorf("unknown card %q, did you mean %s? The table has %s", name, match(n).Name, strings.Join(short, ", "))
	}
	return nil, fmt.Errorf("unknown card %q; the table has %s", name, strings.Join(short, ", "))
}

// match returns the card with this name, or nil.
func match(name string) *Card {
	key := cardKey(name)
	for i := range cards {
		c := &cards[i]
		if key == cardKey(c.Name) || key == cardKey(c.Product) {
			return c
		}
		for _, a := range c.Aliases {
			if key == cardKey(a) {
				return c
			}
		}
	}
	return nil
}

// cardKey drops what users and drivers may write or omit: case, separators, brand words.
func cardKey(name string) string {
	var key strings.Builder
	for _, word := range strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return strings.ContainsRune(" -_.", r) }) {
		switch word {
		case "nvidia", "tesla", "geforce":
		default:
			key.WriteString(word)
		}
	}
	return key.String()
}
