//go:build tools

// Package tools pins kwok, which plays the nodes and pods of a cluster.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
