package apierr_test

import (
	"errors"
	"fmt"

	"github.com/linkreel/linkreel/libs/apierr"
)

// An error's code determines its status. Each layer wraps the error with what it was doing.
// Callers check the code, never the text.
func ExampleNew() {
	taken := apierr.New(apierr.SlugTaken, "The slug \"sale\" is already taken. Choose another.")
	err := fmt.Errorf("create link: %w", taken)

	fmt.Println(apierr.CodeOf(err), apierr.From(err).Status())
	// Output: SLUG_TAKEN 409
}

// A dependency that is down causes a 503. Its error text appears only in the log.
func ExampleDown() {
	err := apierr.Down(errors.New("dial tcp 10.0.0.7:6379: connection refused"))
	e := apierr.From(err)
	fmt.Println(e.Code, e.Status())
	// Output: UNAVAILABLE 503
}

// Any error that is not an *apierr.Error becomes an internal error.
func ExampleFrom() {
	e := apierr.From(errors.New("index out of range"))
	fmt.Println(e.Code, e.Status())
	// Output: INTERNAL 500
}
