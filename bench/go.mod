module github.com/millstream/millstream/bench

go 1.26.0

require (
	github.com/millstream/millstream v0.0.0-00010101000000-000000000000
	golang.org/x/sys v0.50.0
)

require (
	github.com/klauspost/cpuid/v2 v2.3.0 // indirect
	github.com/tidwall/btree v1.8.2 // indirect
	github.com/zeebo/xxh3 v1.1.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
)

replace github.com/millstream/millstream => ../
