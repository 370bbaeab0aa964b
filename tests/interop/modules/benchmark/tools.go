//go:build tools

// Package tools pins the reference server's benchmark program.
package tools

import _ "go.etcd.io/etcd/v3/tools/benchmark"
