package apierr_test

import (
	"errors"
	"fmt"

	"github.com/linkreel/linkreel/libs/apierr"
)

// A failure has a code, and the code decides the status. Layers add what they were doing.
// Callers check the code, never the text.
func ExampleNew() {
	taken := apierr.New(apierr.SlugTaken, "The slug \"sale\" is already taken. Choose another.")
	err := fmt.Errorf("create link: %w", taken)

	fmt.Println(apierr.CodeOf(err), apierr.From(err).Status())
	// Output: SLUG_TAKEN 409
}

// A dependency that is down gives a 503, and its own error text appears only in the log.
func ExampleDown() {
	err := apierr.Down(errors.New("dial tcp 10.0.0.7:6379: connection refused"))
	e := apierr.From(err)
	fmt.Println(e.Code, e.Status())
	// Output: UNAVAILABLE 503
}

// Any error that is not an *apierr.Error is an internal failure.
func ExampleFrom() {
	e := apierr.From(errors.New("index out of range"))
	fmt.Println(e.Code, e.Status())
	// Output: INTERNAL 500
}
