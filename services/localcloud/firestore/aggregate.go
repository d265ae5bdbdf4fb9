package firestore

import (
	"math/big"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
)

// aggregation computes one aggregate of a RunAggregationQuery.
type aggregation struct {
	alias string
	kind  byte  // 'c'ount, 's'um or 'a'verage
	field field // the field that sum or average reads
	upTo  int64 // the limit on count; negative means no limit

	integers big.Int // exact because large positive and negative numbers may cancel out
	doubles  float64
	inexact  bool // at least one of the numbers was a double
	numbers  int64
}

type aggregator struct {
	list []*aggregation
	rows int64
}

func newAggregator(specs []*pb.StructuredAggregationQuery_Aggregation) (*aggregator, error) {
	if len(specs) == 0 || len(specs) > 5 {
		return nil, invalid("An aggregation query takes 1 to 5 aggregations, got %d.", len(specs))
	}
	g := &aggregator{}
	aliases := map[string]bool{}
	for _, s := range specs {
		a := &aggregation{alias: s.GetAlias(), upTo: -1}
		raw := ""
		switch {
		case s.GetCount() != nil:
			a.kind = 'c'
			if s.GetCount().GetUpTo() != nil {
				if a.upTo = s.GetCount().GetUpTo().GetValue(); a.upTo <= 0 {
					return nil, invalid("The maximum of a count must be positive.")
				}
			}
		case s.GetSum() != nil:
			a.kind, raw = 's', s.GetSum().GetField().GetFieldPath()
		case s.GetAvg() != nil:
			a.kind, raw = 'a', s.GetAvg().GetField().GetFieldPath()
		default:
			return nil, invalid("An aggregation needs an operator.")
		}
		if a.kind != 'c' {
			path, err := parseFieldPath(raw)
			if err != nil {
				return nil, err
			}
			a.field = field{raw, path}
		}
		if aliases[a.alias] {
			return nil, invalid("Duplicate aggregation alias %q.", a.alias)
		}
		aliases[a.alias] = true
		g.list = append(g.list, a)
	}
	return g, nil
}

// add adds a document from the result. The document must have all aggregated fields.
func (g *aggregator) add(d *pb.Document) {
	g.rows++
	for _, a := range g.list {
		if a.kind != 'c' {
			a.add(a.field.of(d))
		}
	}
}

func (a *aggregation) add(v *pb.Value) {
	switch x := v.GetValueType().(type) {
	case *pb.Value_IntegerValue:
		a.integers.Add(&a.integers, big.NewInt(x.IntegerValue))
		a.numbers++
	case *pb.Value_DoubleValue:
		a.inexact = true
		a.doubles += x.DoubleValue
		a.numbers++
	}
}

func (a *aggregation) sum() float64 {
	f, _ := new(big.Float).SetInt(&a.integers).Float64()
	return f + a.doubles
}

func (g *aggregator) result() map[string]*pb.Value {
	out := map[string]*pb.Value{}
	for _, a := range g.list {
		switch {
		case a.kind == 'c' && a.upTo >= 0:
			out[a.alias] = intValue(min(g.rows, a.upTo))
		case a.kind == 'c':
			out[a.alias] = intValue(g.rows)
		case a.kind == 'a' && a.numbers == 0:
			out[a.alias] = nullValue()
		case a.kind == 'a':
			out[a.alias] = doubleValue(a.sum() / float64(a.numbers))
		case a.inexact || !a.integers.IsInt64():
			out[a.alias] = doubleValue(a.sum())
		default:
			out[a.alias] = intValue(a.integers.Int64())
		}
	}
	return out
}

// fields returns the aggregated fields.
func (g *aggregator) fields() (out []string) {
	for _, a := range g.list {
		if a.kind != 'c' {
			out = append(out, a.field.raw)
		}
	}
	return out
}
