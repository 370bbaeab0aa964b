//go:build tools

// Package tools pins the reference server of the last minor release, which
// the suites mix with the current one.
package tools

import _ "go.etcd.io/etcd/server/v3"
