package link

import "errors"

// ErrRefused is the error that a [Store] returns for a commit that the database would reject every
// time, usually because it is too large. A smaller commit may succeed.
var ErrRefused = errors.New("the database refuses this commit, and retrying will not help")

// inPieces changes items in several commits if one commit would be too large. do changes as many
// leading items as fit into one commit, and returns how many. If the store rejects a commit,
// inPieces tries half as many items, until it finds an item that is rejected even on its own. It
// passes that item to refused and continues with the others. It stops at any other error. Earlier
// changes are kept.
func inPieces[T any](items []T, do func(items []T) (tried int, err error), refused func(item T, err error)) error {
	for size := len(items); len(items) > 0; {
		piece := items[:min(size, len(items))]
		n, err := do(piece)
		if n == 0 {
			n = len(piece) // do failed before it had determined how many items fit
		}
		switch {
		case errors.Is(err, ErrRefused) && n > 1:
			size = n / 2
			continue
		case errors.Is(err, ErrRefused):
			refused(piece[0], err)
			size = len(items) // the others may succeed
		case err != nil:
			return err
		}
		items = items[n:]
	}
	return nil
}

const (
	// maxCommit limits the weight of the links that one commit changes. Firestore accepts at most
	// 10 MiB per request. It also limits the documents and index entries that a commit writes or
	// deletes to 10 MiB.
	maxCommit = 7 << 20
	// termWeight is the maximum size of a term. It covers the term's entry in the document and its
	// index entry, which repeats the document's name.
	termWeight = 180
	// linkWeight is the size of a link without its destination and its terms: titles, names and
	// IDs.
	linkWeight = 4 << 10
)

// weight estimates how many bytes a commit changes if it creates or deletes the link, including its
// slug, its terms and its event. It estimates the number of terms from the length of their source
// text. An ordinary link weighs 15 kB.
func (l *Link) weight() int {
	if l == nil {
		return 0
	}
	host, path := hostAndPath(l.Destination.Location)
	terms := 2*len(host) + len(path) + len(l.Slug) + len(l.Title)
	for _, t := range l.Tags {
		terms += len(t)
	}
	rules := 0
	for _, r := range l.Route().Rules {
		rules += r.size()
	}
	// The rules are stored three times: in the link, its slug and its event.
	return linkWeight + 2*(len(l.Destination.Given)+len(l.Destination.Location)) + 3*rules + termWeight*min(terms, maxTerms)
}

// fitting returns how many leading links fit into one commit. It returns at least 1, unless there
// are no links.
func fitting(links []*Link) int {
	sum := 0
	for i, l := range links {
		if sum += l.weight(); sum > maxCommit && i > 0 {
			return i
		}
	}
	return len(links)
}
