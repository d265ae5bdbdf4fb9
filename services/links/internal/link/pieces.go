package link

import "errors"

// ErrRefused is a [Store]'s error for a commit that the database would refuse every time,
// mostly because the commit is too large. A smaller one may succeed.
var ErrRefused = errors.New("the commit is refused for good")

// inPieces changes items in several commits if one would be too large. do changes as
// many of the items as fit into one commit, from the first on, and returns how many it
// has tried. If the store refuses a commit, inPieces tries half as many, until it finds
// the item that is refused even alone. It passes that item to refused and continues with
// the others. Any other error ends the work; the items before it stay changed.
func inPieces[T any](items []T, do func(items []T) (tried int, err error), refused func(item T, err error)) error {
	for size := len(items); len(items) > 0; {
		piece := items[:min(size, len(items))]
		n, err := do(piece)
		if n == 0 {
			n = len(piece) // do failed before it could count them
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
	// termWeight is the most that a term takes, as a member of a document and in an index
	// entry, which repeats the document's name.
	termWeight = 180
	// linkWeight is what a link takes besides its destination and its terms: titles, names,
	// ids.
	linkWeight = 4 << 10
)

// weight estimates how many bytes a commit changes if it makes or deletes the link, with
// its slug, its terms and its event. It estimates the terms from their texts. An ordinary
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

// fitting is how many of the links, from the first on, fit into one commit. It is at least
// 1, unless there are no links.
func fitting(links []*Link) int {
	sum := 0
	for i, l := range links {
		if sum += l.weight(); sum > maxCommit && i > 0 {
			return i
		}
	}
	return len(links)
}
