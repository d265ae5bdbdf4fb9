package signin

import (
	"testing"
	"time"
)

// A sign-in that began before an upgrade can be completed after it.
func TestTheFormatOfFlowsStays(t *testing.T) {
	t.Parallel()
	const flow = "TtHAVne1Mh-WVJj6JGWH2hLv_Vm74pODhvf_UAyCE4YgpPzZYj8R_xC3CbzdQn0dOIYVJxu9KV-rvGTDfOJAT3eOFhsoHbxLfaddlw"
	s, err := NewSealer("an internal token that all replicas share", func() time.Time { return time.Date(2026, 11, 22, 10, 9, 0, 0, time.UTC) })
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := s.open("oidc", flow, &got); err != nil || got["state"] != "abc" {
		t.Errorf("open returned error %[2]v and %[1]v, want state abc", got, err)
	}
	if err := s.open("passkey", flow, &got); err == nil {
		t.Error("open accepted a flow of a different kind, want an error")
	}
}
