package firestore

import (
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
)

// tellHot calls tell for each timestamp that the changes store in a hot index. All new entries of a
// hot index are written to the same place. A composite index that starts with a different field,
// such as a bucket or an account, is not hot, because that field distributes its entries.
func (ix *Indexes) tellHot(changes []change, tell func(collection, field string)) {
	if ix == nil || tell == nil {
		return
	}
	for _, c := range changes {
		_, path, err := splitDocument(c.name)
		if err != nil || c.after == nil {
			continue
		}
		ix.hotIn(path[len(path)-2], "", c.after.GetFields(), tell)
	}
}

func (ix *Indexes) hotIn(collection, prefix string, fields map[string]*pb.Value, tell func(collection, field string)) {
	for k, v := range fields {
		path := prefix + k
		switch x := v.GetValueType().(type) {
		case *pb.Value_MapValue:
			ix.hotIn(collection, path+".", x.MapValue.GetFields(), tell)
		case *pb.Value_TimestampValue:
			if ix.hot(collection, path) {
				tell(collection, path)
			}
		}
	}
}

func (ix *Indexes) hot(collection, path string) bool {
	if o := ix.override(collection, path); o == nil || o.Indexes == nil || len(o.Indexes) > 0 {
		return true
	}
	for i := range ix.Composite {
		if x := &ix.Composite[i]; x.CollectionGroup == collection && x.Fields[0].FieldPath == path {
			return true
		}
	}
	return false
}
