//go:build !linux

package main

import "errors"

func onProcessor(string) error {
	return errors.New("only Linux can confine a program to one processor")
}
