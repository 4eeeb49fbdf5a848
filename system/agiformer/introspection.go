package agiformer

import (
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

// Introspection reviews what the blocks did. In each of Steps steps a token attends to earlier positions,
// compares its state with the mean of its states after the earlier blocks, estimates how wrong it is, and
// corrects itself in proportion. A decision weighs each step against the next.
//
// The heads are trained on the truth: the error head predicts the token's loss in nats, and the confidence
// head the probability that the most likely byte is right. Both read the state as a constant, so measuring
// the model does not change it. Everything else learns from the model's own loss.
type Introspection struct{ Steps int }

// Self is the output of the heads.
type Self struct {
	// Errors are estimates [N] of each token's loss in nats: one for each step, and the last for the result.
	Errors []*graph.Value
	// Confidence [N] is the log odds that the most likely token is right.
	Confidence *graph.Value
}

// introspect returns the state x [B, T, D] after introspection. earlier are the states before it.
func (p *forward) introspect(x *graph.Value, earlier []*graph.Value) (*graph.Value, *Self) {
	mean := earlier[0]
	for _, e := range earlier[1:] {
		mean = p.Add(mean, e)
	}
	mean = p.MulC(mean, 1/float64(len(earlier)))
	self := &Self{}
	var y, left *graph.Value // the weighted sum so far, and the remaining weight
	for i := range p.Introspection.Steps {
		x = p.reflect(x, mean, self)
		if i == p.Introspection.Steps-1 {
			break
		}
		on := p.Sigmoid(p.head("decision", x))
		stop := p.AddC(p.Neg(on), 1)
		if left == nil {
			y, left = p.Mul(x, stop), on
			continue
		}
		y, left = p.Add(y, p.Mul(x, p.Mul(stop, left))), p.Mul(left, on)
	}
	if left != nil {
		x = p.Add(y, p.Mul(x, left))
	}
	state := p.Detach(x)
	self.Errors = append(self.Errors, p.errorOf(state))
	self.Confidence = p.Reshape(p.head("confidence", state), -1)
	return x, self
}

// reflect is one step.
func (p *forward) reflect(x, mean *graph.Value, self *Self) *graph.Value {
	x = p.Add(x, p.attention("attention", p.norm("attention_norm", x)))
	h := p.GELU(p.linear("compare", p.Concat(2, p.norm("compare_norm", x), mean), p.D, true))
	x = p.Add(x, p.norm("compared_norm", p.linear("compared", h, p.D, true)))
	wrong := p.errorOf(p.Detach(x))
	self.Errors = append(self.Errors, wrong)
	// e^-loss is the probability that the model gave to the truth.
	doubt := p.Reshape(p.Detach(p.AddC(p.Neg(p.Exp(p.Neg(wrong))), 1)), p.batch, p.time, 1)
	h = p.GELU(p.linear("correct", p.Concat(2, p.norm("correct_norm", x), doubt), p.D, true))
	return p.Add(x, p.Mul(p.linear("corrected", h, p.D, true), doubt))
}

// errorOf returns the estimate [N] of the loss.
func (p *forward) errorOf(state *graph.Value) *graph.Value {
	return p.Reshape(p.Apply(graph.FnSoftplus, p.head("error", state)), -1)
}

// head computes a number for each token: [B, T, 1].
func (p *forward) head(name string, x *graph.Value) (y *graph.Value) {
	p.Scope(name, func() {
		h := nn.LayerNorm(p.Builder, "norm", x, p.Eps)
		h = p.GELU(p.linear("dense", h, p.D/2, true))
		y = p.linear("out", h, 1, true)
	})
	return y
}

// study returns the loss that trains the heads: the weighted mean over tokens of half the squared error of
// the estimates (averaged over the steps) plus the cross-entropy of the confidence. losses and right (1 or
// 0), both F32 [N], are the truth.
func (s *Self) study(b *graph.Builder, losses, right, weights *graph.Value) *graph.Value {
	var sum *graph.Value
	for _, e := range s.Errors {
		d := b.MulC(b.Square(b.Sub(e, losses)), 0.5/float64(len(s.Errors)))
		if sum == nil {
			sum = d
		} else {
			sum = b.Add(sum, d)
		}
	}
	z := s.Confidence
	sum = b.Add(sum, b.Sub(b.Apply(graph.FnSoftplus, z), b.Mul(z, right)))
	return b.Div(b.Sum(b.Mul(sum, weights)), b.MaxC(b.Sum(weights), 1))
}
