//go:build tools

// Package tools pins the reference server's own test suites.
package tools

import (
	_ "go.etcd.io/etcd/tests/v3/common"
	_ "go.etcd.io/etcd/tests/v3/e2e"
	_ "go.etcd.io/etcd/tests/v3/robustness"
)
