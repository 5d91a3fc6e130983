// Package bench is a module of measurements beside other ways to do the same. It holds commands only: README.md.
package bench
