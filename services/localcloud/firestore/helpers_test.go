package firestore_test

import (
	"testing"

	gc "cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

func open(tb testing.TB, o firestore.Options) *firestore.Server {
	tb.Helper()
	s, err := firestore.Open(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func client(tb testing.TB, s *firestore.Server) *gc.Client {
	tb.Helper()
	c, err := s.Client(tb.Context(), "linkreel")
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func indexes(tb testing.TB, files ...string) *firestore.Indexes {
	tb.Helper()
	raw := make([][]byte, len(files))
	for i, f := range files {
		raw[i] = []byte(f)
	}
	ix, err := firestore.ParseIndexes(raw...)
	if err != nil {
		tb.Fatal(err)
	}
	return ix
}
