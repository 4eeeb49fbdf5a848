package shard

import (
	"context"
	"fmt"
	"sync"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/data/token"
)

const (
	// A batch goes to a worker once it has this much text or this many documents.
	batchBytes = 256 << 10
	batchDocs  = 1024
)

// batch is a run of documents on its way through the workers.
type batch struct {
	docs   []data.Document
	bytes  int
	tokens []int32
	ends   []int    // of each document in tokens
	hashes []uint64 // of each document's normalized text
	normal []byte   // scratch
	err    error    // of the source, after docs
	done   chan struct{}
}

func (b *batch) encode(enc Encoder) {
	defer func() { b.done <- struct{}{} }()
	b.tokens, b.ends, b.hashes = b.tokens[:0], b.ends[:0], b.hashes[:0]
	for _, doc := range b.docs {
		if err := b.add(enc, doc); err != nil {
			b.err = fmt.Errorf("shard: %s: %w", doc.ID, err)
			return
		}
	}
}

func (b *batch) add(enc Encoder, doc data.Document) (err error) {
	defer token.Catch(&err)
	if doc.Text != nil {
		b.tokens = enc.EncodeOrdinary(b.tokens, doc.Text)
	} else {
		b.tokens = append(b.tokens, doc.Tokens...)
	}
	var h uint64
	h, b.normal = normalHash(doc, b.normal)
	b.ends, b.hashes = append(b.ends, len(b.tokens)), append(b.hashes, h)
	return nil
}

// encodeAll reads src in one goroutine, encodes batches in several and calls
// use with them in source order. The number of batches in flight is fixed, and
// so is the memory they take, up to the largest documents.
func encodeAll(ctx context.Context, src data.Source, enc Encoder, workers int, use func(*batch) error) error {
	ctx, cancel := context.WithCancel(ctx)
	flight := 2*workers + 2
	free := make(chan *batch, flight)
	for range flight {
		free <- &batch{done: make(chan struct{}, 1)}
	}
	// Neither channel blocks its sender: each has room for all batches.
	work, ordered := make(chan *batch, flight), make(chan *batch, flight)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		defer close(work)
		defer close(ordered)
		readAll(ctx, src, free, func(b *batch) { work <- b; ordered <- b })
	})
	for range workers {
		wg.Go(func() {
			for b := range work {
				b.encode(enc)
			}
		})
	}
	for b := range ordered {
		<-b.done
		if b.err != nil {
			return b.err
		}
		if err := use(b); err != nil {
			return err
		}
		free <- b
	}
	return ctx.Err()
}

// readAll fills batches from src until its end, its error or the end of ctx.
func readAll(ctx context.Context, src data.Source, free <-chan *batch, send func(*batch)) {
	var b *batch
	// take waits for a free batch; nil when ctx has ended.
	take := func() *batch {
		select {
		case b := <-free:
			clear(b.docs) // release the texts
			b.docs, b.bytes, b.err = b.docs[:0], 0, nil
			return b
		case <-ctx.Done():
			return nil
		}
	}
	for doc, err := range src.Documents() {
		if ctx.Err() != nil {
			return
		}
		if b == nil {
			if b = take(); b == nil {
				return
			}
		}
		if err != nil {
			b.err = err
			break
		}
		b.docs = append(b.docs, doc)
		b.bytes += len(doc.Text) + 4*len(doc.Tokens)
		if b.bytes >= batchBytes || len(b.docs) >= batchDocs {
			send(b)
			b = nil
		}
	}
	if b != nil {
		send(b)
	}
}
