package firestore

import (
	"maps"
	"strings"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
)

// nameField is the field path of the document's name.
const nameField = "__name__"

// parseFieldPath splits a.b.`c.d` into its segments.
func parseFieldPath(s string) ([]string, error) {
	var out []string
	for i := 0; ; {
		if i >= len(s) {
			return nil, invalid("Invalid property path %q: empty segment.", s)
		}
		var segment string
		if s[i] == '`' {
			var b strings.Builder
			for i++; ; i++ {
				if i >= len(s) {
					return nil, invalid("Invalid property path %q: unterminated quote.", s)
				}
				if s[i] == '`' {
					i++
					break
				}
				if s[i] == '\\' && i+1 < len(s) {
					i++
				}
				b.WriteByte(s[i])
			}
			segment = b.String()
		} else {
			end := strings.IndexByte(s[i:], '.')
			if end < 0 {
				end = len(s) - i
			}
			segment = s[i : i+end]
			i += end
		}
		if segment == "" {
			return nil, invalid("Invalid property path %q: empty segment.", s)
		}
		out = append(out, segment)
		if i == len(s) {
			return out, nil
		}
		if s[i] != '.' {
			return nil, invalid("Invalid property path %q.", s)
		}
		i++
	}
}

// getPath returns nil if there is no value at the path.
func getPath(m map[string]*pb.Value, path []string) *pb.Value {
	for i, k := range path {
		v, ok := m[k]
		if !ok {
			return nil
		}
		if i == len(path)-1 {
			return v
		}
		m = v.GetMapValue().GetFields()
	}
	return nil
}

// setPath returns a copy of m with v at path. If v is nil, the value is deleted. Each map on the
// path is copied, so shared values never change.
func setPath(m map[string]*pb.Value, path []string, v *pb.Value) map[string]*pb.Value {
	n := make(map[string]*pb.Value, len(m)+1)
	maps.Copy(n, m)
	if len(path) == 1 {
		if v == nil {
			delete(n, path[0])
		} else {
			n[path[0]] = v
		}
		return n
	}
	child, isMap := n[path[0]].GetValueType().(*pb.Value_MapValue)
	if v == nil && !isMap {
		return n
	}
	var sub map[string]*pb.Value
	if isMap {
		sub = child.MapValue.GetFields()
	}
	n[path[0]] = mapValue(setPath(sub, path[1:], v))
	return n
}

// fieldOf returns the value of a query's field, which may be the document's name.
func fieldOf(d *pb.Document, raw string, path []string) *pb.Value {
	if raw == nameField {
		return referenceValue(d.GetName())
	}
	return getPath(d.GetFields(), path)
}

// project keeps only the fields in a read mask or a projection. Without fields, it keeps the whole
// document.
func project(d *pb.Document, fields []string) *pb.Document {
	if len(fields) == 0 {
		return d
	}
	out := &pb.Document{Name: d.GetName(), CreateTime: d.GetCreateTime(), UpdateTime: d.GetUpdateTime()}
	for _, f := range fields {
		path, err := parseFieldPath(f)
		// Paths were validated before the read. The response always contains the name.
		if err != nil || f == nameField {
			continue
		}
		if v := getPath(d.GetFields(), path); v != nil {
			out.Fields = setPath(out.GetFields(), path, v)
		}
	}
	return out
}
