// Package durable makes names durable: a file survives a crash only once its directory has been synced too.
package durable
