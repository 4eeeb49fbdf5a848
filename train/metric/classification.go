package metric

import "fmt"

// Confusion counts the predictions of one class against the rest.
type Confusion struct {
	TP int `json:"true_positives"`
	FP int `json:"false_positives"`
	TN int `json:"true_negatives"`
	FN int `json:"false_negatives"`
}

// Count is the confusion when a score of at least threshold predicts the
// positive class.
func Count(scores []float64, positive []bool, threshold float64) (c Confusion) {
	for i, s := range scores {
		switch {
		case s >= threshold && positive[i]:
			c.TP++
		case s >= threshold:
			c.FP++
		case positive[i]:
			c.FN++
		default:
			c.TN++
		}
	}
	return c
}

// Total is the number of predictions.
func (c Confusion) Total() int { return c.TP + c.FP + c.TN + c.FN }

// Accuracy is the share of correct predictions; 0 without any.
func (c Confusion) Accuracy() float64 { return ratio(c.TP+c.TN, c.Total()) }

// Precision is the share of the predicted positives that are positive; 0 when
// none is predicted.
func (c Confusion) Precision() float64 { return ratio(c.TP, c.TP+c.FP) }

// Recall is the share of the positives that are predicted as such; 0 without any.
func (c Confusion) Recall() float64 { return ratio(c.TP, c.TP+c.FN) }

// FalsePositiveRate is the share of the negatives that are predicted positive;
// 0 without any.
func (c Confusion) FalsePositiveRate() float64 { return ratio(c.FP, c.FP+c.TN) }

// F1 is the harmonic mean of precision and recall; 0 when both are 0.
func (c Confusion) F1() float64 { return ratio(2*c.TP, 2*c.TP+c.FP+c.FN) }

// Matrix is the confusion as a matrix with the given names of the negative and
// the positive class.
func (c Confusion) Matrix(negative, positive string) Matrix {
	return Matrix{Labels: []string{negative, positive}, Counts: [][]int{{c.TN, c.FP}, {c.FN, c.TP}}}
}

func ratio(a, b int) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// Matrix counts the predictions of any number of classes:
// Counts[truth][predicted].
type Matrix struct {
	Labels []string `json:"labels"`
	Counts [][]int  `json:"counts"`
}

// NewMatrix is an empty matrix of named classes.
func NewMatrix(labels ...string) *Matrix {
	m := &Matrix{Labels: labels, Counts: make([][]int, len(labels))}
	for i := range m.Counts {
		m.Counts[i] = make([]int, len(labels))
	}
	return m
}

// Add counts a prediction.
func (m *Matrix) Add(truth, predicted int) error {
	if n := len(m.Labels); truth < 0 || truth >= n || predicted < 0 || predicted >= n {
		return fmt.Errorf("metric: class %d predicted as %d, of %d classes", truth, predicted, n)
	}
	m.Counts[truth][predicted]++
	return nil
}

// Class is the confusion of one class against the rest.
func (m *Matrix) Class(i int) (c Confusion) {
	for truth, row := range m.Counts {
		for predicted, n := range row {
			switch {
			case truth == i && predicted == i:
				c.TP += n
			case predicted == i:
				c.FP += n
			case truth == i:
				c.FN += n
			default:
				c.TN += n
			}
		}
	}
	return c
}

// Accuracy is the share of correct predictions; 0 without any.
func (m *Matrix) Accuracy() float64 {
	right, all := 0, 0
	for truth, row := range m.Counts {
		right += row[truth]
		for _, n := range row {
			all += n
		}
	}
	return ratio(right, all)
}

// MacroF1 is the mean of the classes' F1.
func (m *Matrix) MacroF1() float64 {
	sum := 0.0
	for i := range m.Labels {
		c := m.Class(i)
		sum += c.F1()
	}
	return sum / float64(max(1, len(m.Labels)))
}
