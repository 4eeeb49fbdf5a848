package pass

// both calls two functions at once, neither of which may write what the other one uses. It panics if one of them panics.
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
