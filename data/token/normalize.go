package token

func readNormalizer(n node) normalizer {
	if n.isNull() {
		return nil
	}
	o := n.object()
	kind := o.get("type")
	kind.fail("normalizer %s is not supported", kind.shown())
	return nil
}
