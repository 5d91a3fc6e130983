//go:build !unix

package jsonlio

// syncDir does nothing: these systems do not sync a directory by opening it.
func syncDir(string) error { return nil }

func explain(err error) error { return err }
