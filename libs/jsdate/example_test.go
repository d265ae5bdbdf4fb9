package jsdate_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/linkreel/linkreel/libs/jsdate"
)

// Parse accepts the same strings as `new Date(x)`, including surprising ones.
func ExampleParse() {
	for _, s := range []string{"2026-11-20T17:00:00Z", "Nov 20, 2026 5:00 PM GMT+1", "2026-02-30", "tomorrow"} {
		ms, ok := jsdate.Parse(s)
		if !ok {
			fmt.Println(s, "is not a date")
			continue
		}
		fmt.Println(time.UnixMilli(ms).UTC().Format(time.RFC3339))
	}
	// Output:
	// 2026-11-20T17:00:00Z
	// 2026-11-20T16:00:00Z
	// 2026-03-02T00:00:00Z
	// tomorrow is not a date
}

func ExampleFromNumber() {
	ms, ok := jsdate.FromNumber(1790000000000.9)
	fmt.Println(ms, ok)
	// Output: 1790000000000 true
}

// A field in a JSON body accepts both forms.
func ExampleMoment() {
	for _, body := range []string{`"2026-11-20T17:00:00Z"`, `1790000000000`, `1e999`, `"tomorrow"`} {
		var m jsdate.Moment
		if err := json.Unmarshal([]byte(body), &m); err != nil {
			fmt.Println(err)
			continue
		}
		ms, ok := m.Date()
		fmt.Println(body, ms, ok)
	}
	// Output:
	// "2026-11-20T17:00:00Z" 1795194000000 true
	// 1790000000000 1790000000000 true
	// 1e999 0 false
	// "tomorrow" 0 false
}
