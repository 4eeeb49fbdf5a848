package pass

// both calls two functions at once, which must not write what the other one uses, and panics if one of them does.
func both(a, b func()) {
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		a()
	}()
	defer func() {
		if r := <-done; r != nil {
			panic(r)
		}
	}()
	b()
}
