//go:build tools

// Package tools pins the three programs of the reference server, so that
// go.sum covers everything the build needs.
package tools

import (
	_ "go.etcd.io/etcd/etcdctl/v3"
	_ "go.etcd.io/etcd/etcdutl/v3"
	_ "go.etcd.io/etcd/server/v3"
)
