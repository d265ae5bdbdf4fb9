package standalone

import (
	"io"
	"testing"
)

func TestAWrongSettingIsNamed(t *testing.T) {
	for value, want := range map[string]string{
		"abc":    `configuration: LINKREEL_PORT_BASE: use a whole number, such as 9000, not "abc"`,
		"65533":  "configuration: LINKREEL_PORT_BASE: use a number from 0 to 65532, not 65533",
		"-1":     "configuration: LINKREEL_PORT_BASE: use a number from 0 to 65532, not -1",
		"999e99": `configuration: LINKREEL_PORT_BASE: use a whole number, such as 9000, not "999e99"`,
	} {
		t.Setenv("LINKREEL_PORT_BASE", value)
		if err := Up(t.Context(), io.Discard); err == nil || err.Error() != want {
			t.Errorf("with %s, Up returned %v, want %s", value, err, want)
		}
	}
}
