package pass

import "github.com/snug-ml/snug/engine/graph"

// project returns the shape in which a tensor of shape s, which broadcasts to shape from,
// is read together with tensors of shape to, which is shape from under another view. ok
// is false if there is none: s stretches along a dimension that the view joins with one
// along which it does not.
func project(s, from, to graph.Shape) (out graph.Shape, ok bool) {
	if s.Elems() == from.Elems() {
		return to, true
	}
	lead := len(from) - len(s)
	i, j := 0, 0
	for i < len(from) || j < len(to) {
		// The next group of dimensions that both shapes divide alike.
		i0, j0 := i, j
		a, b := 1, 1
		for i == i0 || j == j0 || a != b {
			if j == len(to) || i < len(from) && (a < b || i == i0) {
				if i == len(from) {
					break
				}
				a *= from[i]
				i++
			} else {
				b *= to[j]
				j++
			}
		}
		stretched, full := true, true
		for k := i0; k < i; k++ {
			own := 1
			if k >= lead {
				own = s[k-lead]
			}
			stretched = stretched && own == 1
			full = full && own == from[k]
		}
		switch {
		case full:
			out = append(out, to[j0:j]...)
		case stretched:
			for range j - j0 {
				out = append(out, 1)
			}
		default:
			return nil, false
		}
	}
	for len(out) > 0 && out[0] == 1 {
		out = out[1:]
	}
	return out, true
}
