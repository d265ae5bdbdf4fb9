package standalone

import (
	"io"
	"strings"
	"testing"
)

func TestAWrongSettingIsNamed(t *testing.T) {
	t.Setenv("LINKREEL_PORT_BASE", "abc")
	if err := Up(t.Context(), io.Discard); err == nil || !strings.HasPrefix(err.Error(), "configuration: LINKREEL_PORT_BASE: ") {
		t.Errorf("Up returned %v, want an error with the name of the setting", err)
	}
}
