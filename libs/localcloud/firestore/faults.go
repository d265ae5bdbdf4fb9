package firestore

// Faults will inject failures.
type Faults struct{}

func (f *Faults) diskError() error { return nil }
