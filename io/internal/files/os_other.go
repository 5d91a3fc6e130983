//go:build !unix

package files

func explain(err error) error { return err }
