package token

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Piece is one token of a text that is ready for a model.
type Piece struct {
	ID     int32
	Type   int32 // 0: the first text, 1: the second, unless the tokenizer says otherwise
	Span   Span  // the bytes of the text that it comes from; none for inserted tokens
	Text   int   // 0 or 1: the text that Span is in
	Added  bool  // inserted by the tokenizer: a special token of its template, or padding
	Unseen bool  // padding, which a model should exclude from attention and loss
	found  bool  // an added token, perhaps with white space around it
}

// A postProcessor puts special tokens around one or two encoded texts, and sets their type ids.
type postProcessor interface {
	// process returns the pieces of each part in order; the parts are texts or what is put around them.
	process(t *Tokenizer, texts []string, parts [][]Piece) [][]Piece
	// adds is the number of pieces that process puts around a number of texts.
	adds(texts int) int
}

func (t *Tokenizer) readPostProcessor(n node) postProcessor {
	if n.isNull() {
		return nil
	}
	o := n.object()
	var p postProcessor
	switch kind := o.get("type"); kind.str() {
	case "Sequence":
		var all postProcessors
		for _, item := range o.get("processors").parts() {
			all = append(all, t.readPostProcessor(item))
		}
		if all.templates() > 1 {
			o.fail("more than one processor adds tokens around the text")
		}
		p = all
	case "ByteLevel":
		p = trimSpans{o.get("trim_offsets").boolOr(true), o.get("add_prefix_space").boolOr(true)}
		o.get("use_regex").boolOr(true) // only for the pre-tokenizer of the same name
	case "TemplateProcessing":
		p = t.readTemplate(o)
	case "BertProcessing":
		cls, sep := t.readTokenPair(o.get("cls")), t.readTokenPair(o.get("sep"))
		p = template{
			{put(cls, 0), place(0, 0), put(sep, 0)},
			{put(cls, 0), place(0, 0), put(sep, 0), place(1, 1), put(sep, 1)},
		}
	case "RobertaProcessing":
		cls, sep := t.readTokenPair(o.get("cls")), t.readTokenPair(o.get("sep"))
		p = postProcessors{
			trimSpans{o.get("trim_offsets").boolOr(true), o.get("add_prefix_space").boolOr(true)},
			template{
				{put(cls, 0), place(0, 0), put(sep, 0)},
				{put(cls, 0), place(0, 0), put(sep, 0), put(sep, 0), place(1, 0), put(sep, 0)},
			},
		}
	default:
		kind.fail("post-processor %s is not supported", kind.shown())
	}
	o.done()
	return p
}

// postProcessors apply one after the other.
type postProcessors []postProcessor

func (p postProcessors) process(t *Tokenizer, texts []string, parts [][]Piece) [][]Piece {
	for _, q := range p {
		parts = q.process(t, texts, parts)
	}
	return parts
}

func (p postProcessors) adds(texts int) (n int) {
	for _, q := range p {
		n += q.adds(texts)
	}
	return n
}

// templates counts the templates among them: the output of one cannot be the input of another.
func (p postProcessors) templates() (n int) {
	for _, q := range p {
		switch q := q.(type) {
		case template:
			n++
		case postProcessors:
			n += q.templates()
		}
	}
	return n
}

// A template says, for one text and for two, what comes in which order.
type template [2][]slot

// A slot is a text or inserted tokens.
type slot struct {
	text int // -1: none
	ids  []int32
	kind int32
}

func put(id, kind int32) slot           { return slot{-1, []int32{id}, kind} }
func place(number int, kind int32) slot { return slot{text: number, kind: kind} }

func (p template) adds(texts int) (n int) {
	for _, s := range p[texts-1] {
		n += len(s.ids)
	}
	return n
}

func (p template) process(_ *Tokenizer, _ []string, parts [][]Piece) [][]Piece {
	var out [][]Piece
	for _, s := range p[len(parts)-1] {
		if s.text >= 0 {
			part := parts[s.text]
			for i := range part {
				part[i].Type = s.kind
			}
			out = append(out, part)
			continue
		}
		var added []Piece
		for _, id := range s.ids {
			added = append(added, Piece{ID: id, Type: s.kind, Added: true})
		}
		out = append(out, added)
	}
	return out
}

// readTokenPair reads ["[SEP]", 102].
func (t *Tokenizer) readTokenPair(n node) int32 {
	pair := n.list()
	if len(pair) != 2 {
		n.fail("expected a token and its id, found %s", n.shown())
		return 0
	}
	return t.checkToken(pair[1], pair[0].str())
}

// checkToken reads an id that must belong to a token.
func (t *Tokenizer) checkToken(n node, token string) int32 {
	id := n.id()
	if n.err == nil && (int(id) >= len(t.known) || !t.known[id]) {
		n.fail("token %q has id %d here, which is not in the vocabulary", token, id)
	}
	return id
}

func (t *Tokenizer) readTemplate(o object) postProcessor {
	tokens := map[string][]int32{}
	special := o.get("special_tokens").object()
	for _, name := range slices.Sorted(maps.Keys(special.fields)) {
		s := special.get(name).object()
		names := s.get("tokens").list()
		ids := s.get("ids").list()
		s.get("id").str()
		s.done()
		if len(ids) != len(names) {
			s.fail("%d ids for %d tokens", len(ids), len(names))
			return nil
		}
		for i, id := range ids {
			tokens[name] = append(tokens[name], t.checkToken(id, names[i].str()))
		}
	}
	var p template
	for i, name := range []string{"single", "pair"} {
		for _, item := range o.get(name).list() {
			s := item.object()
			token, sequence := s.get("SpecialToken"), s.get("Sequence")
			s.done()
			if token.isNull() == sequence.isNull() {
				item.fail("expected SpecialToken or Sequence, found %s", item.shown())
				return nil
			}
			if sequence.isNull() {
				in := token.object()
				id := in.get("id")
				ids, ok := tokens[id.str()]
				if !ok {
					id.fail("%s is not in special_tokens", id.shown())
				}
				p[i] = append(p[i], slot{-1, ids, in.get("type_id").id()})
				in.done()
				continue
			}
			in := sequence.object()
			slot := slot{kind: in.get("type_id").id()}
			switch id := in.get("id"); id.str() {
			case "A":
			case "B":
				slot.text = 1
				if i == 0 {
					id.fail("a single text has no B")
				}
			default:
				id.fail("expected A or B, found %s", id.shown())
			}
			in.done()
			p[i] = append(p[i], slot)
		}
	}
	return p
}

// trimSpans removes white space at the ends of tokens from their spans.
type trimSpans struct{ on, prefixSpace bool }

func (p trimSpans) adds(int) int { return 0 }

func (p trimSpans) process(t *Tokenizer, texts []string, parts [][]Piece) [][]Piece {
	if !p.on {
		return parts
	}
	for _, part := range parts {
		for i := range part {
			piece := &part[i]
			text := texts[piece.Text]
			token := t.tokens[piece.ID]
			if piece.found {
				token = text[piece.Span.Start:piece.Span.End]
			}
			p.trim(piece, i == 0, token, text)
		}
	}
	return parts
}

// trim counts in characters: it removes as many from the span as the token has spaces.
func (p trimSpans) trim(piece *Piece, first bool, token, text string) {
	white := func(r rune) bool { return r == byteRune[' '] || isSpace(r) }
	inner := strings.TrimLeftFunc(token, white)
	left := utf8.RuneCountInString(token[:len(token)-len(inner)])
	right := utf8.RuneCountInString(token[len(strings.TrimRightFunc(token, white)):])
	if left == 1 && p.prefixSpace && (first || piece.Span.Start == 0) {
		left = 0 // it was inserted, not taken from the text
	}
	for ; left > 0 && piece.Span.Start < piece.Span.End; left-- {
		_, n := utf8.DecodeRuneInString(text[piece.Span.Start:])
		piece.Span.Start += n
	}
	end := piece.Span.End
	for range right {
		_, n := utf8.DecodeLastRuneInString(text[:end])
		if n == 0 {
			return // the text before it has fewer characters
		}
		end -= n
	}
	piece.Span.End = max(end, piece.Span.Start)
}

// A truncation cuts texts that are too long. Of the windows that the reference can cut a
// text into, with a stride, only the first is made.
type truncation struct {
	most     int
	strategy string
	left     bool // cuts at the start
}

func readTruncation(n node) *truncation {
	if n.isNull() {
		return nil
	}
	o := n.object()
	tr := &truncation{most: o.get("max_length").int(), strategy: o.get("strategy").str(), left: o.readLeft()}
	o.get("stride").intOr(0)
	switch {
	case tr.most < 0:
		o.get("max_length").fail("must not be negative")
	case tr.strategy != "LongestFirst" && tr.strategy != "OnlyFirst" && tr.strategy != "OnlySecond":
		o.get("strategy").fail("expected LongestFirst, OnlyFirst or OnlySecond, found %s", o.get("strategy").shown())
	}
	o.done()
	return tr
}

func (o object) readLeft() bool {
	n := o.get("direction")
	s := n.strOr("Right")
	if s != "Left" && s != "Right" {
		n.fail("expected Left or Right, found %s", n.shown())
	}
	return s == "Left"
}

// cut shortens the parts, around which added pieces will be put.
func (tr *truncation) cut(parts [][]Piece, added int) error {
	most := tr.most - added
	total := 0
	for _, part := range parts {
		total += len(part)
	}
	if most < 0 {
		return fmt.Errorf("truncation to %d tokens leaves no room for %d special tokens", tr.most, added)
	}
	if total <= most {
		return nil
	}
	keep := func(i, n int) {
		if n = min(n, len(parts[i])); tr.left {
			parts[i] = parts[i][len(parts[i])-n:]
		} else {
			parts[i] = parts[i][:n]
		}
	}
	keepPart := func(i int) error {
		if i >= len(parts) || len(parts[i]) <= total-most {
			return fmt.Errorf("truncation to %d tokens (%s) needs to cut %d, more than there are", tr.most, tr.strategy, total-most)
		}
		keep(i, len(parts[i])-(total-most))
		return nil
	}
	switch {
	case tr.strategy == "OnlyFirst":
		return keepPart(0)
	case tr.strategy == "OnlySecond":
		return keepPart(1)
	case len(parts) == 1:
		keep(0, most)
		return nil
	}
	shorter, longer := 0, 1
	if len(parts[0]) > len(parts[1]) {
		shorter, longer = 1, 0
	}
	short := len(parts[shorter])
	long := max(short, most-short)
	if short+long > most {
		short = most / 2
		long = short + most%2
	}
	keep(shorter, short)
	keep(longer, long)
	return nil
}

// A padding fills up texts that are too short.
type padding struct {
	fixed    int // the length; 0: only to the next multiple
	multiple int // 0: any length
	left     bool
	id, kind int32
}

func (t *Tokenizer) readPadding(n node) *padding {
	if n.isNull() {
		return nil
	}
	o := n.object()
	p := &padding{
		multiple: o.get("pad_to_multiple_of").intOr(0),
		left:     o.readLeft(),
		id:       t.checkToken(o.get("pad_id"), o.get("pad_token").str()),
		kind:     o.get("pad_type_id").id(),
	}
	strategy := o.get("strategy")
	if !strategy.isNull() && strategy.raw[0] == '{' {
		fixed := strategy.object()
		p.fixed = fixed.get("Fixed").int()
		fixed.done()
	} else if s := strategy.str(); s != "BatchLongest" {
		strategy.fail("expected BatchLongest or Fixed, found %s", strategy.shown())
	}
	const most = 1 << 20
	if p.fixed < 0 || p.fixed > most || p.multiple < 0 || p.multiple > most {
		o.fail("lengths from 0 to %d are supported", most)
	}
	o.done()
	return p
}

func (p *padding) fill(pieces []Piece) []Piece {
	n := max(p.fixed, len(pieces))
	if p.multiple > 0 {
		n = (n + p.multiple - 1) / p.multiple * p.multiple
	}
	missing := slices.Repeat([]Piece{{ID: p.id, Type: p.kind, Added: true, Unseen: true}}, n-len(pieces))
	if p.left {
		return append(missing, pieces...)
	}
	return append(pieces, missing...)
}

// Prepare encodes one text, or a pair, as the model expects it: with the special tokens
// of the tokenizer's template, truncated and padded as its file says.
func (t *Tokenizer) Prepare(texts ...string) (all []Piece, err error) {
	defer Catch(&err)
	if len(texts) < 1 || len(texts) > 2 {
		return nil, fmt.Errorf("prepare: %d texts; expected one or two", len(texts))
	}
	parts := make([][]Piece, len(texts))
	for i, s := range texts {
		parts[i] = t.pieces(s, i)
	}
	if t.truncation != nil {
		added := 0
		if t.post != nil {
			added = t.post.adds(len(parts))
		}
		if err := t.truncation.cut(parts, added); err != nil {
			return nil, fmt.Errorf("prepare: %w", err)
		}
	}
	if t.post != nil {
		parts = t.post.process(t, texts, parts)
	}
	all = slices.Concat(parts...)
	if t.padding != nil {
		all = t.padding.fill(all)
	}
	return all, nil
}

// pieces encodes a text with the spans of its tokens.
func (t *Tokenizer) pieces(s string, number int) (out []Piece) {
	w := t.worker()
	defer t.workers.Put(w)
	t.parts(newStretch(s, true), false, func(part stretch) {
		if part.tok != nil {
			out = append(out, Piece{ID: part.tok.id, Type: int32(number), Span: part.span(0, len(part.s)), Text: number, found: true})
			return
		}
		for _, word := range t.words(w, part) {
			w.symbols = t.model.tokenize(w.symbols[:0], word.s)
			at, size := 0, 0
			for _, sym := range w.symbols {
				if sym.size > 0 { // otherwise it shares the part of the previous one
					at, size = at+size, int(sym.size)
				}
				out = append(out, Piece{ID: sym.id, Type: int32(number), Span: word.span(at, at+size), Text: number})
			}
		}
	})
	return out
}
