package link

import "errors"

// ErrRefused is a [Store]'s error for a commit that it will never take as it is,
// mostly because the commit changes more than a database takes at once. A smaller
// one may succeed.
var ErrRefused = errors.New("the commit is refused for good")

// inPieces changes items in several commits if one would be too large. do changes as
// many of the items as fit into one commit, from the first on, and returns how many it
// has tried. If the store refuses a commit, inPieces tries half as many, until it finds
// the item that is refused even alone. It passes that one to refused and goes on with
// the others. Any other error ends the work; the items before it stay changed.
func inPieces[T any](items []T, do func(items []T) (tried int, err error), refused func(item T, err error)) error {
	for size := len(items); len(items) > 0; {
		piece := items[:min(size, len(items))]
		n, err := do(piece)
		if n == 0 {
			n = len(piece) // it failed before it could tell
		}
		switch {
		case errors.Is(err, ErrRefused) && n > 1:
			size = n / 2
			continue
		case errors.Is(err, ErrRefused):
			refused(piece[0], err)
			size = len(items) // the rest may be fine
		case err != nil:
			return err
		}
		items = items[n:]
	}
	return nil
}

const (
	// maxCommit bounds the weight of the links that one commit changes. Firestore
	// takes 10 MiB of a request, and 10 MiB of documents and index entries, whether
	// they are written or deleted.
	maxCommit = 7 << 20
	// termWeight is what a term takes at most: as a member of a document, and in an
	// entry of an index, which repeats the document's name.
	termWeight = 180
	// linkWeight is what a link takes besides its texts: titles, names, ids.
	linkWeight = 4 << 10
)

// weight estimates the bytes that a commit changes to make or delete the link, with its
// slug, its terms and its event. It estimates the terms from their texts. An ordinary
// link weighs 15 kB.
func (l *Link) weight() int {
	if l == nil {
		return 0
	}
	host, path := hostAndPath(l.Destination.Location)
	terms := 2*len(host) + len(path) + len(l.Slug) + len(l.Title)
	for _, t := range l.Tags {
		terms += len(t)
	}
	return linkWeight + 2*(len(l.Destination.Given)+len(l.Destination.Location)) + termWeight*min(terms, maxTerms)
}

// fitting is how many of the links, from the first on, fit into one commit: at least
// one, if there is one.
func fitting(links []*Link) int {
	sum := 0
	for i, l := range links {
		if sum += l.weight(); sum > maxCommit && i > 0 {
			return i
		}
	}
	return len(links)
}
