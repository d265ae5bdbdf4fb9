package link

// Top is before every link in a list.
const Top int64 = -1

// Query asks for links of an account.
type Query struct {
	AccountID string
	Before    int64 // a Seq, or [Top]; what is listed is below it
	Limit     int
	// Whole asks for every field; a list shows fewer, and reads fewer.
	Whole bool
}
