package dynamo

import (
	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/size"
)

// least returns the minimum that the stage of a configuration needs; see [plan.Least].
func least(c *config.Config) plan.Least {
	e, s := encoder(c), stage(c)
	held := plan.Frozen
	if s == stageEncoder {
		held = plan.Trained
	}
	tables, blocks := e.Sizes()
	out := plan.Least{
		{Of: held, Count: tables, Keys: "model.vocab_size, model.max_seq_len, model.token_types or model.d_model"},
		{Of: held, Count: blocks, Keys: "model.n_layers, model.d_model or model.d_ff"},
	}
	switch {
	case isTask(s):
		out = append(out, leastOf(c, s)...)
		return append(out, plan.Tokens(lengthOf(c, s), e.D))
	case s == stageJoint:
		longest := 0
		for _, name := range config.Of[Model](c).Tasks {
			out = append(out, leastOf(c, name)...)
			longest = max(longest, lengthOf(c, name))
		}
		out = append(out, plan.Tokens(longest, e.D))
	default:
		out = append(out, plan.Tokens(c.Data.SeqLen, e.D))
	}
	if s != stageEncoder {
		in := e.D
		for _, width := range config.Of[Router](c).Hidden {
			out = append(out, plan.Part{Of: plan.Trained, Count: size.Float(in, width), Keys: "router.hidden or model.d_model"})
			in = width
		}
	}
	return out
}

// leastOf returns the minimum for the adapter and the decoder of a task.
func leastOf(c *config.Config, name string) plan.Least {
	a, e := newAdapter(c, name), encoder(c)
	sides := 0.0 // of the low-rank matrices of a block
	for target := range a.targets {
		switch target {
		case "intermediate", "output":
			sides += float64(e.D) + float64(e.FF)
		default:
			sides += 2 * float64(e.D)
		}
	}
	out := plan.Least{{Of: plan.Trained, Count: size.Float(e.Layers, a.Rank) * sides, Keys: "tasks." + name + ".rank, model.d_model or model.d_ff"}}
	if kindOf(name) == write {
		d := newHead(c, name, 0).decoder
		out = append(out,
			plan.Part{Of: plan.Trained, Count: 8*size.Float(d.layers, d.d, d.d) + 2*size.Float(d.layers, d.d, d.ff), Keys: "model.decoder_layers, model.decoder_ff or model.d_model"},
			plan.Part{Of: plan.Trained, Count: size.Float(d.length, d.d), Keys: "tasks." + name + ".target_length or model.d_model"})
	}
	return out
}
