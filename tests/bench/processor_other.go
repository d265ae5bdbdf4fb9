//go:build !linux

package main

import "errors"

func onProcessor(string) error { return errors.New("one processor: only Linux can do that") }
