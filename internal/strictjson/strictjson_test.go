package strictjson

import (
	"strings"
	"testing"
)

func TestUnmarshal(t *testing.T) {
	type inner struct {
		N int      `json:"n"`
		F *float64 `json:"f"`
	}
	for _, c := range []struct{ text, want string }{
		{`{"a": {"n": 1}, "b": [{"n": 2}, {"n": 3}], "s": "a", "t": {"a": 1, "b": "a"}}`, ""},
		{`{"a": {"n": 1}, "s": "x",` + "\n" + `"a": {"n": 2}}`, `the key "a" is given twice, again on line 2`},
		{`{"a": {"n": 1, "n": 2}}`, `the key "n" is given twice, again on line 1`},
		{`{"b": [{"n": 1}, {"n": 1, "f": 2, "n": 3}]}`, `the key "n" is given twice`},
		{`{"s": "n", "t": {"s": "s"}}`, ""},
		{`{"a": {"n": "1"}}`, `a.n: want a whole number, found a string (byte 15)`},
		{`{"a": {"n": 1.5}}`, `a.n: want a whole number, found a number`},
		{`{"a": {"f": []}}`, `a.f: want a number, found an array`},
		{`{"b": {}}`, `b: want an array, found an object`},
		{`{"s": true}`, `s: want a string, found true or false`},
		{`[1]`, `want an object, found an array (byte 1)`},
		{`{"a"`, "unexpected end of JSON input"},
	} {
		var v struct {
			A inner          `json:"a"`
			B []inner        `json:"b"`
			S string         `json:"s"`
			T map[string]any `json:"t"`
		}
		err := Unmarshal([]byte(c.text), &v)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.text, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "Go ")):
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
}
