package firestore

import (
	"strings"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/protobuf/proto"
)

// checkWrites rejects writes that are invalid regardless of the stored documents. Production
// returns InvalidArgument for them before it checks any precondition.
func checkWrites(writes []*pb.Write) (names []string, err error) {
	names = make([]string, len(writes))
	last, transforms := map[string]*combinedWrite{}, map[string]int{}
	for i, w := range writes {
		if names[i], err = checkWrite(w); err != nil {
			return nil, err
		}
		transforms[names[i]] += len(w.GetUpdateTransforms()) + len(w.GetTransform().GetFieldTransforms())
		if transforms[names[i]] > maxTransforms {
			return nil, invalid("Cannot apply more than %d field transforms to one document in a commit: %s", maxTransforms, names[i])
		}
		if last[names[i]] == nil {
			last[names[i]] = &combinedWrite{}
		}
		if err := last[names[i]].add(w); err != nil {
			return nil, err
		}
	}
	return names, nil
}

func checkWrite(w *pb.Write) (name string, err error) {
	if name, err = writeTarget(w); err != nil {
		return "", err
	}
	if _, err := checkFields(w.GetUpdate().GetFields(), 0); err != nil {
		return "", err
	}
	if err := checkMask(w.GetUpdateMask()); err != nil {
		return "", err
	}
	return name, checkTransforms(append(w.GetUpdateTransforms(), w.GetTransform().GetFieldTransforms()...))
}

func checkMask(m *pb.DocumentMask) error {
	for _, p := range m.GetFieldPaths() {
		if _, err := parseFieldPath(p); err != nil {
			return err
		}
	}
	return nil
}

// checkTransforms rejects a write that transforms both a map and a value in that map.
func checkTransforms(ts []*pb.DocumentTransform_FieldTransform) error {
	var paths []string
	for _, t := range ts {
		path, err := parseFieldPath(t.GetFieldPath())
		if err != nil {
			return err
		}
		// Apply the transform to a missing value, to find an invalid transform before any write is
		// applied.
		if _, _, err := applyTransform(nil, t, 0); err != nil {
			return err
		}
		// The NUL at the end keeps "a" from counting as a parent of "ab".
		joined := strings.Join(path, "\x00") + "\x00"
		for _, p := range paths {
			if p != joined && (strings.HasPrefix(p, joined) || strings.HasPrefix(joined, p)) {
				return invalid("Cannot transform property %s and its nested property at the same time.", t.GetFieldPath())
			}
		}
		paths = append(paths, joined)
	}
	return nil
}

// combinedWrite is the combined effect of a request's writes on one document. These writes count as
// one, so sequences that make no sense are rejected.
type combinedWrite struct {
	kind    string // the kind of the last write
	version *pb.Precondition
}

func (c *combinedWrite) add(w *pb.Write) error {
	first := c.kind == ""
	kind, mustExist, mustNot := "upsert", false, false
	var version *pb.Precondition
	switch p := w.GetCurrentDocument().GetConditionType().(type) {
	case *pb.Precondition_Exists:
		kind, mustExist, mustNot = "insert", p.Exists, !p.Exists
		if p.Exists {
			kind = "update"
		}
	case *pb.Precondition_UpdateTime:
		kind, mustExist, version = "update", true, w.GetCurrentDocument()
	}
	if _, isDelete := w.GetOperation().(*pb.Write_Delete); isDelete {
		kind = "delete"
	}
	previous := c.kind
	c.kind = kind
	switch {
	case first:
		c.version = version
	case mustNot && previous != "delete", mustExist && previous == "delete":
		return invalid("Cannot %s then %s an entity in the same request.", previous, kind)
	case version != nil && !proto.Equal(c.version, version):
		return invalid("Cannot collapse mutations with different version preconditions.")
	}
	return nil
}
